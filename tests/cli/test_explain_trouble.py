"""`serving-stack explain` where something cannot be told, or it is used wrongly: exit codes 3 and 2."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from functions.compose.sets import COMPOSITIONS
from tests.cli.explaining import ROOT, THE_GATEWAY, explain, explained, shown
from tests.compose.stage import GATEWAY, MODELEXPRESS, QUEUES, steps
from tests.support import SECRETS, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from functions.local.instance import ControlPlane
    from tests.compose.apart import Apart

PROGRAM = Path(sys.executable).with_name("serving-stack")


async def test_a_kind_that_may_not_be_read_hides_no_other(away: Apart) -> None:
    await away.bring_up()
    groups = [each.kind.group for each in steps(*COMPOSITIONS) if each.kind != ROOT.kind]
    rules = [{"apiGroups": groups, "resources": ["*"], "verbs": ["get", "list"]}]
    put_kubeconfig(away.api, away.away.kubeconfig_for("narrow", rules=rules).read_bytes())
    done = await explained(away)
    assert done.code == 3
    assert done.states(QUEUES) == dict.fromkeys(shown(QUEUES), "Unknown")
    assert 'user "narrow" has no right to get queues.scheduling.run.ai' in done.object(ROOT)["detail"]
    for composition in (GATEWAY, MODELEXPRESS):
        assert done.states(composition) == dict.fromkeys(shown(composition), "Ready")
    said = (await explain(away.hub.kubeconfig)).line
    assert "Grant the right on the target to the user of the kubeconfig in Secret modelplane-system/target" in said


async def test_client_cas_that_may_not_be_read_hide_no_other_object(away: Apart) -> None:
    await away.bring_up()
    reader = away.hub.kubeconfig_for("blind", rules=[*hub_rules("inferenceclusters")])
    done = await explain(reader, "gpu-1", "-o", "json")
    assert done.code == 3
    unknown = [key for key, state in done.states(GATEWAY).items() if state == "Unknown"]
    assert unknown == [each.key for each in GATEWAY.steps if each.client_ca]
    assert set(done.states(GATEWAY).values()) == {"Ready", "Unknown"}
    assert "no right to list inferencegateways.modelplane.ai" in done.object(THE_GATEWAY)["detail"]
    assert "auth can-i list inferencegateways.modelplane.ai" in (await explain(reader)).stdout


def hub_rules(*resources: str) -> Iterator[dict[str, list[str]]]:
    """May read these of Modelplane's, and the kubeconfig Secrets."""
    yield {"apiGroups": ["modelplane.ai"], "resources": [*resources], "verbs": ["get", "list"]}
    yield {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}


async def test_secrets_that_may_not_be_read(away: Apart) -> None:
    reader = away.hub.kubeconfig_for("clusters-only", rules=[*hub_rules("inferenceclusters")][:1])
    await away.judge()
    await away.compose(QUEUES)
    done = await explain(reader)
    assert done.code == 3
    assert done.line.count('user "clusters-only" has no right to get secrets in namespace modelplane-system') == 1
    assert "QueuesComposed: True, Applied" in done.line
    assert "auth can-i get secrets -n modelplane-system\n" in done.stdout


async def test_a_target_that_does_not_answer(away: Apart) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        content = yaml.safe_load(away.away.kubeconfig.read_text("utf-8"))
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{taken.getsockname()[1]}"
        put_kubeconfig(away.api, yaml.safe_dump(content))
        done = await explain(away.hub.kubeconfig)
    assert (done.code, done.line.count("refused the connection")) == (3, 1)
    assert "describe inferencecluster gpu-1\n" in done.stdout
    assert content["users"][0]["user"]["token"] not in done.stdout


async def test_a_target_that_refuses_the_credential(away: Apart) -> None:
    content = yaml.safe_load(away.away.kubeconfig.read_text("utf-8"))
    content["users"][0]["user"]["token"] = "no-such-token"
    put_kubeconfig(away.api, yaml.safe_dump(content))
    done = await explain(away.hub.kubeconfig)
    assert done.code == 3
    assert "Renew the kubeconfig in Secret modelplane-system/target, key kubeconfig." in done.line
    assert "no-such-token" not in done.stdout


async def test_no_kubeconfig_of_the_target(away: Apart) -> None:
    assert away.api.request("DELETE", f"{SECRETS}/target").status == 200
    done = await explained(away)
    assert (done.code, done.data["outcome"], done.data["target"]) == (3, "Unknown", "")
    assert done.data["trouble"].startswith("Secret modelplane-system/target does not exist; create it, or")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["gpu-9"], "the hub has no InferenceCluster gpu-9; it has: gpu-1, managed", id="unknown"),
        pytest.param(["managed"], "InferenceCluster managed is not Provided", id="managed"),
        pytest.param(["GPU_1"], "no InferenceCluster can be called 'GPU_1'", id="name"),
        pytest.param([], "Missing argument 'CLUSTER'", id="nothing"),
        pytest.param(["gpu-1", "gpu-2"], "unexpected extra argument", id="two"),
        pytest.param(["gpu-1", "--context", "other"], 'no context "other"; its contexts are: local', id="context"),
        pytest.param(["gpu-1", "--kubeconfig", "/no/such/file"], "'/no/such/file' does not exist", id="file"),
        pytest.param(["gpu-1", "-o", "yaml"], "'yaml' is not one of", id="output"),
    ],
)
def test_wrong_use_is_2(arguments: list[str], complaint: str, hub: ControlPlane) -> None:
    put_cluster(hub.api)
    put_cluster(hub.api, "managed", components="Managed")
    done = run(hub.kubeconfig, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in " ".join(done.stderr.split())


def run(kubeconfig: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The installed program, in a process of its own."""
    return subprocess.run(
        [PROGRAM, "explain", *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_hub_that_may_not_be_read_is_3(output: str, hub: ControlPlane) -> None:
    done = run(hub.kubeconfig_for("nobody"), "gpu-1", "-o", output)
    assert (done.returncode, done.stderr) == (3, "")
    assert "has no right to get inferenceclusters.modelplane.ai" in " ".join(done.stdout.split())
    if output == "json":
        assert json.loads(done.stdout)["sets"] == []
    else:
        assert "  kubectl auth can-i get inferenceclusters.modelplane.ai\n" in done.stdout


def test_no_hub_at_all_is_3(tmp_path: Path) -> None:
    done = run(tmp_path / "none", "gpu-1")
    assert (done.returncode, done.stderr) == (3, "")
    assert "no kubeconfig found at" in " ".join(done.stdout.split())


async def test_a_cluster_that_is_no_hub_is_3(away_once: ControlPlane) -> None:
    done = await explain(away_once.kubeconfig)
    assert done.code == 3
    assert "does not serve InferenceClusters (modelplane.ai/v1alpha1): it is no hub" in done.line


async def test_a_hub_without_any_inference_cluster(hub: ControlPlane) -> None:
    done = await explain(hub.kubeconfig)
    assert (done.code, "the hub has no InferenceCluster gpu-1; it has none at all" in done.line) == (2, True)
