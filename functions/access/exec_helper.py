"""Runs the program that a kubeconfig names under `user.exec` and takes the credential it prints.

`kubernetes_asyncio` has an ExecProvider, but its process cannot be ended from outside, it knows neither client
certificates nor cluster information, and it puts what the program says into exceptions.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from functions.access.errors import KubeconfigInvalid

if TYPE_CHECKING:
    from functions.access.connection import ExecHelper

_OUTPUT_LIMIT: Final = 1 << 20
_END_WITHIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Given:
    """What a helper printed: a token, a client certificate with its key, or both; `expires` is Unix time."""

    token: str | None = field(repr=False)
    certificate: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)
    expires: float = math.inf


async def run(helper: ExecHelper, *, timeout: float) -> Given:  # noqa: ASYNC109 - the program is ended, not just left
    """Run a helper for at most `timeout` seconds; its standard error is shown to the person as it comes.

    Raises:
        KubeconfigInvalid: It is missing, fails, takes too long, or prints no credential.
    """
    interactive = helper.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if helper.interactive_mode == "Always" and not interactive:
        raise _invalid(helper, "wants to ask at a terminal, and there is none")
    try:
        process = await asyncio.create_subprocess_exec(
            helper.command,
            *helper.args,
            env=_environment(helper, interactive=interactive),
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            # A group of its own, so that all it started ends with it; at a terminal it could then not read.
            start_new_session=not interactive,
        )
    except OSError as error:
        hint = f"; {helper.install_hint.strip()}" if helper.install_hint else ""
        raise _invalid(helper, f"cannot be run: {error.strerror}{hint}") from None
    try:
        async with asyncio.timeout(timeout):
            output = await _read(helper, process)
            code = await process.wait()
    except TimeoutError:
        raise _invalid(helper, f"did not finish within {timeout:g} s") from None
    finally:
        await _end(process, group=not interactive)
    if code != 0:
        raise _invalid(helper, f"ended with exit code {code}")
    return _credential(helper, output)


def _environment(helper: ExecHelper, *, interactive: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": interactive}
    if helper.cluster is not None:
        spec["cluster"] = dict(helper.cluster)
    info = {"apiVersion": helper.api_version, "kind": "ExecCredential", "spec": spec}
    return {**os.environ, **dict(helper.env), "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}


async def _read(helper: ExecHelper, process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    output = bytearray()
    while chunk := await process.stdout.read(65536):
        output += chunk
        if len(output) > _OUTPUT_LIMIT:
            raise _invalid(helper, "prints more than 1 MiB")
    return bytes(output)


async def _end(process: asyncio.subprocess.Process, *, group: bool) -> None:
    """Leaves nothing behind that still runs, whether it finished, failed or was given up."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    # asyncio reports the end once the output is read up; whoever left the group may hold that open for ever.
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_WITHIN):
            while await process.stdout.read(65536):
                pass
            await process.wait()


def _credential(helper: ExecHelper, output: bytes) -> Given:
    try:
        document = orjson.loads(output)
    except orjson.JSONDecodeError:
        raise _invalid(helper, "does not print JSON") from None
    if not isinstance(document, dict) or document.get("kind") != "ExecCredential":
        raise _invalid(helper, "does not print an ExecCredential")
    if document.get("apiVersion") != helper.api_version:
        raise _invalid(helper, f"does not speak {helper.api_version}")
    status = document.get("status")
    if not isinstance(status, dict):
        raise _invalid(helper, "prints an ExecCredential without status")
    token, certificate, key = (
        _text(helper, status, name) for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if (certificate is None) != (key is None):
        raise _invalid(helper, "prints one of clientCertificateData and clientKeyData without the other")
    if token is None and certificate is None:
        raise _invalid(helper, "prints neither a token nor a client certificate")
    return Given(
        token,
        None if certificate is None else certificate.encode(),
        None if key is None else key.encode(),
        _expiry(helper, _text(helper, status, "expirationTimestamp")),
    )


def _text(helper: ExecHelper, status: dict[str, Any], name: str) -> str | None:
    value = status.get(name)
    if value is not None and not isinstance(value, str):
        raise _invalid(helper, f"prints a status.{name} that is not a string")
    return (value or "").strip() or None


def _expiry(helper: ExecHelper, text: str | None) -> float:
    if text is None:
        return math.inf
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _invalid(helper, "prints an expirationTimestamp that is not RFC 3339")
    return moment.timestamp()


def _invalid(helper: ExecHelper, what: str) -> KubeconfigInvalid:
    return KubeconfigInvalid(f"the credential helper {helper.command} {what}")
