"""`serving-stack demo` as a person runs it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from rich.console import Console

from functions.compose.client_cas import ClientCAs
from functions.compose.gateway import COMPOSITION
from functions.compose.ownership import marked
from functions.compose.step import Inputs
from functions.conditions import REQUIREMENTS_MET, checked_components
from functions.demo.picture import Picture
from functions.demo.run import until_signal
from functions.demo.screen import Screen
from functions.demo.story import STACK, tell
from functions.local.certificates import Authority
from functions.local.processes import Identity, exit_on_signals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from functions.local.instance import ControlPlane

CA = Authority.new().certificate.decode()

pytestmark = pytest.mark.usefixtures("binaries")

# Each place in the story by the line that is printed there; before the first, the control plane is being started.
READY = "A Kubernetes API server of its own is ready"
INSTALLING = "Its substrate is installed"
CLUSTER = "InferenceCluster gpu-1"
MISSING = "\N{MULTIPLICATION SIGN}"
STORY = (
    READY,
    r"gpu-1 is registered",
    rf"  {MISSING} GatewayComposed +False +WaitingForRequirements",
    r"  · Issuer modelplane-selfsigned +waits for cert-manager",
    INSTALLING,
    r"  √ cert-manager +True +Provided",
    r"    cert-manager: after \d",
    r"  √ envoy-gateway +True",
    r"  · Gateway cluster-gateway +waits for a client CA",
    r"Now trust-manager is uninstalled",
    rf"  {MISSING} trust-manager +False",
    r"  · Bundle modelplane-cluster-ca +waits for trust-manager",
    r"It is installed again",
    r"  √ trust-manager +True",
    r"  √ Bundle modelplane-cluster-ca +ready, applied in \d",
    r"Without a client CA the Gateway would let in anybody",
    r"InferenceGateway eu publishes its client CA",
    r"  √ Gateway cluster-gateway +ready, applied in \d",
    r"  √ GatewayComposed +True +Applied",
    r"The gateway is ready; gpu-1 publishes its address, 203\.0\.113\.10\.",
    r"Somebody adds a listener without TLS",
    rf"  {MISSING} Gateway cluster-gateway +listens on port 80 too",
    r"  √ Gateway cluster-gateway +ready",
    r"It was taken out again after \d",
    r"gpu-1 is deleted",
    r"  … Gateway cluster-gateway +held by its controller",
    r"  · Gateway cluster-gateway +gone after \d",
    r"  · ClientTrafficPolicy cluster-gateway-client-auth +gone after \d",
    r"gpu-1 is gone, and nothing .* is left\. Its Events .*: WaitingFor.*, WaitingFor.*, Applied, Removing, Removed\.$",
    r"  11 conditions +\d",
    r"  10 objects +\d",
    r"  the listener +\d",
    r"  the deletion +\d",
)

_MET = dict.fromkeys(
    (REQUIREMENTS_MET, COMPOSITION.condition, *(each.condition for each in checked_components(STACK))), "True"
)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where the demonstration has its temporary files."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    return directory


@pytest.fixture
def demo(scratch: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "functions", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"},
    ) as process:
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_tells_all_of_its_story_in_order_and_leaves_nothing(demo: subprocess.Popen[str], scratch: Path) -> None:
    said, errors = demo.communicate(timeout=280)
    assert (demo.returncode, errors) == (0, ""), said
    lines = said.splitlines()
    rest = iter(lines)
    for wanted in STORY:
        assert any(re.match(wanted, line) for line in rest), f"{wanted} is not there, or not in its place:\n{said}"
    assert "\x1b" not in said
    installing = next(number for number, line in enumerate(lines) if line.startswith(INSTALLING))
    assert any(
        re.match(rf"  {MISSING} RequirementsMet +False +MissingRequirements", line) for line in lines[:installing]
    )
    published = next(number for number, line in enumerate(lines) if "publishes its client CA" in line)
    for withheld in ("Gateway", "ClientTrafficPolicy", "ConfigMap modelplane-inference-gateway-cas"):
        before = [line for line in lines[:published] if line[4:].startswith(f"{withheld} ")]
        assert before
        assert all("waits for" in line for line in before)
    gone = [line[4:].partition(" gone")[0].strip() for line in lines if " gone after " in line]
    assert gone[0] == "Gateway cluster-gateway"  # each later one is seen by a watch of its own
    assert set(gone) == {each.key for each in COMPOSITION.steps if each.is_watched and not each.shared} | {CLUSTER}
    assert len(gone) == len(set(gone))
    assert not any(scratch.iterdir())


async def test_what_does_not_follow_in_time_ends_it_with_a_line_that_says_so(
    hub: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await tell(hub, within=0.0) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "RequirementsMet did not become MissingRequirements within 0 s; this is a bug of serving-stack."


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Whatever a test does about signals is undone after it."""
    before = {each: signal.getsignal(each) for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def picture() -> Picture:
    """Of a cluster whose conditions are all met, though late, and on which there is no object yet."""
    shown = Picture(STACK, COMPOSITION)
    shown.see_cluster(_cluster(_MET), 20.0)
    for each in checked_components(STACK):
        shown.follows(each.condition, 10.1)
    return shown


def test_both_tables_fit_on_eighty_columns_while_everything_waits(picture: Picture) -> None:
    shown = _shown(picture)
    assert shown[4].split() == ["CONDITION", "OF", "gpu-1", "AFTER", "OBJECT", "ON", "gpu-1", "STATE"]
    assert "√ node-feature-discovery 9900 ms · GatewayClass        waits for its API" in shown
    assert "                                 · Gateway             waits for a client CA" in shown


def test_both_tables_fit_on_eighty_columns_when_everything_is_ready(picture: Picture) -> None:
    _bring_up(picture)
    shown = _shown(picture)
    assert "  status.gateway       203.0.113.10" in shown
    assert "√ kube-prometheus-stack  9900 ms √ EnvoyProxy          applied in 9000 ms" in shown
    assert "                                 √ Gateway             ready, applied in 9000 ms" in shown


def test_the_table_of_the_teardown_fits_on_eighty_columns(picture: Picture) -> None:
    _bring_up(picture)
    picture.see_cluster(_cluster({COMPOSITION.condition: "False"}, deleted=True), 200.0)
    picture.see_objects("Gateway", {}, 209.0)
    shown = _shown(picture)
    assert "· Gateway cluster-gateway                         gone after 9000 ms" in shown
    assert "√ ClientTrafficPolicy cluster-gateway-client-auth ready, applied in 9000 ms" in shown
    assert "… InferenceCluster gpu-1                          held by modelplane.ai/gateway" in shown


def test_there_is_room_for_reasons_and_names_where_it_is_wide(picture: Picture) -> None:
    _bring_up(picture)
    shown = _shown(picture, width=124)
    assert any("Provided" in line and "Bundle modelplane-cluster-ca" in line for line in shown)


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["", "NO_COLOR"])
def test_colour_is_for_terminals_that_want_it(environment: dict[str, str], *, coloured: bool, picture: Picture) -> None:
    console = _console(environment=environment)
    console.print(Screen(picture, console).tables())
    assert ("\x1b[32m" in _written(console)) is coloured


@pytest.mark.parametrize(
    ("number", "line"),
    [
        pytest.param(signal.SIGINT, READY, id="Ctrl-C when ready"),
        pytest.param(signal.SIGTERM, INSTALLING, id="SIGTERM while installing"),
        pytest.param(signal.SIGHUP, INSTALLING, id="SIGHUP while installing"),
    ],
)
def test_a_signal_ends_it_and_leaves_nothing(
    number: signal.Signals, line: str, demo: subprocess.Popen[str], scratch: Path
) -> None:
    assert demo.stdout is not None
    assert any(said.startswith(line) for said in demo.stdout)
    servers = _servers(scratch)
    assert len(servers) == 3
    _end(demo, number)
    assert not any(server.alive() for server in servers)
    assert not any(scratch.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_while_the_control_plane_starts_leaves_nothing(
    number: signal.Signals, demo: subprocess.Popen[str], scratch: Path
) -> None:
    while not (servers := _servers(scratch)):
        assert demo.poll() is None
    _end(demo, number)
    assert not any(server.alive() for server in servers)
    assert not any(scratch.iterdir())


@pytest.mark.usefixtures("usual_signals")
def test_a_signal_that_comes_while_the_event_loop_takes_what_it_received_ends_it_too() -> None:
    class Receiver(asyncio.Protocol):
        def data_received(self, _: bytes) -> None:
            signal.raise_signal(signal.SIGTERM)

    async def story() -> int:
        ours, theirs = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().create_connection(Receiver, sock=ours)
        with theirs, closing(transport):
            theirs.send(b"something")
            await asyncio.sleep(30)
        return 0

    exit_on_signals()
    assert uvloop.run(until_signal(story())) == 128 + signal.SIGTERM


def _servers(scratch: Path) -> list[Identity]:
    """The servers of the control plane that lives in there, as far as they were started."""
    for record in scratch.glob("serving-stack-*/control-plane/processes.json"):
        return [Identity(**server) for server in json.loads(record.read_text())["servers"].values()]
    return []


def _end(demo: subprocess.Popen[str], number: signal.Signals) -> None:
    demo.send_signal(number)
    _, errors = demo.communicate(timeout=30)
    assert (demo.returncode, errors.strip()) == (128 + number, "")


def _cluster(
    statuses: dict[str, str], *, deleted: bool = False, gateway: dict[str, str] | None = None
) -> dict[str, Any]:
    """An InferenceCluster with these conditions, as the API server would have it."""
    conditions = [{"type": key, "status": status, "reason": "Provided"} for key, status in statuses.items()]
    metadata = {"name": "gpu-1", "uid": "1", "resourceVersion": "1", "finalizers": ["modelplane.ai/gateway"]}
    if deleted:
        metadata["deletionTimestamp"] = "2026-12-01T04:00:00Z"
    return {"metadata": metadata, "status": {"conditions": conditions, "gateway": gateway or {}}}


def _bring_up(picture: Picture) -> None:
    """Each object is there and ready nine seconds after the one before, as the API server would have it."""
    picture.see_cluster(_cluster(_MET, gateway={"address": "203.0.113.10", "hostname": "gateway.example"}), 20.0)
    picture.see_client_ca(20.0, published=True)
    inputs = Inputs(cluster="gpu-1", uid="1", client_cas=ClientCAs(bundle="a CA"))
    said = [{"type": each, "status": "True"} for each in ("Accepted", "Ready", "Synced")]
    status = {"conditions": said, "addresses": [{"value": "203.0.113.10"}], "ancestors": [{"conditions": said}]}
    found: dict[str, dict[str, Any]] = {each.kind.name: {} for each in COMPOSITION.steps}
    for kind in found:
        picture.see_objects(kind, {}, 20.0)
    for number, step in enumerate(COMPOSITION.steps):
        made = {"metadata": {"name": step.name}, "data": {"ca.crt": CA}}
        found[step.kind.name][step.name] = {**(marked(step, inputs) if step.manifest else made), "status": status}
        picture.see_objects(step.kind.name, found[step.kind.name], 29.0 + 9.0 * number)


def _shown(picture: Picture, *, width: int = 80) -> list[str]:
    """The tables as a terminal of 24 lines shows them; they leave room for some lines of the story."""
    console = _console(width=width)
    console.print(Screen(picture, console).tables())
    lines = [line.rstrip() for line in _written(console).splitlines()]
    assert len(lines) <= 19
    assert max(len(line) for line in lines) <= width
    return lines


def _console(*, width: int = 80, environment: dict[str, str] | None = None) -> Console:
    colours = {"color_system": None} if environment is None else {"_environ": environment, "color_system": "standard"}
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=24, **colours)


def _written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
