"""Runs `serving-stack explain` beside the functions, and reads what it says."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from click import ClickException
from click.testing import CliRunner

from functions.cli.main import cli
from tests.compose.stage import GATEWAY, MODELEXPRESS, QUEUES, step_of
from tests.support import CLUSTERS

if TYPE_CHECKING:
    from pathlib import Path

    from functions.compose.step import Composition, Step
    from tests.compose.apart import Apart

CLUSTER = f"{CLUSTERS}/gpu-1"
SERVICE = step_of(MODELEXPRESS, "Service modelexpress-server")
ROOT = step_of(QUEUES, "Queue modelplane-root")
THE_GATEWAY = step_of(GATEWAY, "Gateway cluster-gateway")
POLICY = step_of(GATEWAY, "ClientTrafficPolicy cluster-gateway-client-auth")
CLIENT_CAS = step_of(GATEWAY, "ConfigMap modelplane-inference-gateway-cas")


@dataclass(frozen=True)
class Said:
    """What the command said, and how it ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.stdout))

    @property
    def line(self) -> str:
        """All on one line, as it was before it was wrapped."""
        return " ".join((self.stdout + self.stderr).split())

    def object(self, step: Step) -> dict[str, Any]:
        """How an object stands."""
        (found,) = (
            each
            for one in self.data["sets"]
            for each in one["objects"]
            if (each["kind"], each["name"]) == (step.kind.name, step.name)
        )
        return dict(found)

    def states(self, composition: Composition) -> dict[str, str]:
        """The states of a set's objects, in their order."""
        (found,) = (each for each in self.data["sets"] if each["name"] == composition.name)
        return {f"{each['kind']} {each['name']}": each["state"] for each in found["objects"]}


async def explain(kubeconfig: Path, *arguments: str) -> Said:
    """Runs the command in a thread, so that what the target is asked through goes on."""
    words = ["explain", "--kubeconfig", str(kubeconfig), *(arguments or ("gpu-1",))]
    result = await asyncio.to_thread(CliRunner().invoke, cli, words, standalone_mode=False)
    if isinstance(result.exception, ClickException):
        return Said(result.exception.exit_code, result.stdout, result.exception.format_message())
    if result.exception is not None:
        raise result.exception
    return Said(result.return_value, result.stdout, result.stderr)


async def explained(stage: Apart, *arguments: str) -> Said:
    """The same as data, for `gpu-1`."""
    return await explain(stage.hub.kubeconfig, "gpu-1", "-o", "json", *arguments)


def shown(composition: Composition) -> list[str]:
    """The keys of a set's objects, but for what others' controllers make for ours."""
    return [each.key for each in composition.steps if each.is_watched]
