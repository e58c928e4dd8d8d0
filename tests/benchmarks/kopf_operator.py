"""The peer: a plain kopf operator that judges one CRD and writes one condition.

Run by `reaction` as `kopf run` with BENCH_CRD, BENCH_VERSION and BENCH_CLUSTER in its environment. It does what such an
operator usually does: goes by the object of the event, and writes only what changed.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
from pathlib import Path
from typing import Any, Final

import aiohttp
import kopf

_CRD: Final = os.environ["BENCH_CRD"]
_VERSION: Final = os.environ["BENCH_VERSION"]
_CONFIG: Final = json.loads(Path(os.environ["KUBECONFIG"]).read_bytes())
_PATH: Final = f"/apis/modelplane.ai/v1alpha1/inferenceclusters/{os.environ['BENCH_CLUSTER']}/status"
_REASONS: Final = {"True": "RequirementsMet", "False": "MissingRequirements", "Unknown": "Checking"}


class _Peer:
    """What the operator keeps between events."""

    session: aiohttp.ClientSession
    written: str = ""


@kopf.on.startup()
async def connect(**_: Any) -> None:
    """Opens the session that conditions are written with, and writes the first one."""
    cluster = _CONFIG["clusters"][0]["cluster"]
    authority = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    headers = {
        "Authorization": f"Bearer {_CONFIG['users'][0]['user']['token']}",
        "Content-Type": "application/merge-patch+json",
    }
    connector = aiohttp.TCPConnector(ssl=authority)
    timeout = aiohttp.ClientTimeout(total=5)
    _Peer.session = aiohttp.ClientSession(cluster["server"], connector=connector, headers=headers, timeout=timeout)
    await _write("Unknown")


@kopf.on.cleanup()
async def disconnect(**_: Any) -> None:
    """Closes the session."""
    await _Peer.session.close()


@kopf.on.event("apiextensions.k8s.io", "v1", "customresourcedefinitions")
async def judge(name: str, body: kopf.Body, **_: Any) -> None:
    """Judges the CRD by the object of the event."""
    if name == _CRD:
        await _write("True" if _met(body) else "False")


def _met(crd: kopf.Body) -> bool:
    conditions = crd.status.get("conditions") or ()
    return (
        "deletionTimestamp" not in crd.metadata
        and any(each["name"] == _VERSION and each["served"] for each in crd.spec["versions"])
        and any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
    )


async def _write(status: str) -> None:
    if status == _Peer.written:
        return
    condition = {
        "type": "RequirementsMet",
        "status": status,
        "reason": _REASONS[status],
        "message": f"{_CRD} is missing" if status == "False" else "",
        "lastTransitionTime": "2026-12-01T04:00:00Z",
    }
    async with _Peer.session.patch(_PATH, json={"status": {"conditions": [condition]}}) as response:
        response.raise_for_status()
    _Peer.written = status
