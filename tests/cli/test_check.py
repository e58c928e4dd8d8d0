"""`serving-stack check` as a person runs it: the installed program against real API servers."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import click
import pytest
import yaml

from functions.access import kubeconfig
from functions.access.client import Client
from functions.catalog import CustomResource, Stack, of_stack
from functions.cli.check import Duration, _Cluster, _Options
from functions.cli.formats.terminal import ASCII_MARKS, MARKS, Terminal
from functions.judge import Outcome
from functions.local.instance import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from functions.access.client import Reply
    from functions.access.connection import Connection
    from functions.catalog import Requirement
    from functions.local.binaries import Binaries
    from tests.conftest import StartControlPlane

PROGRAM = Path(sys.executable).with_name("serving-stack")
FORMATS = ("text", "json", "yaml", "junit", "sarif", "github")
STANDARD = tuple(one for each in of_stack(Stack.STANDARD) for one in each.requirements)
BUNDLES = CustomResource("bundles.trust.cert-manager.io", "v1alpha1")
GPU = next(each for each in STANDARD if not isinstance(each, CustomResource))


def environment(kubeconfig: str | Path, **more: str) -> dict[str, str]:
    """Ours, with that KUBECONFIG and as plain as in a pipeline."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM", "KUBECONFIG"}}
    return {**inherited, "KUBECONFIG": str(kubeconfig), "PYTHONUTF8": "1", **more}


def check(kubeconfig: str | Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "check", *arguments],
        env=environment(kubeconfig, **more),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def waiting(kubeconfig: Path, *arguments: str) -> subprocess.Popen[str]:
    """A check that waits, once it has said on stderr what for."""
    process = subprocess.Popen(
        [PROGRAM, "check", "--wait", "1m", *arguments],
        env=environment(kubeconfig),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stderr is not None
    assert "waiting 1m for local (Standard)" in process.stderr.readline()
    return process


def path(requirement: Requirement) -> str:
    if isinstance(requirement, CustomResource):
        return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{requirement.name}"
    return f"/apis/{requirement.group}/{requirement.version}/{requirement.plural}/{requirement.name}"


def provide(plane: ControlPlane, requirements: tuple[Requirement, ...]) -> None:
    """The least that meets each requirement, served once this returns."""
    for each in requirements:
        answer = plane.api.apply(path(each), manifest(each))
        assert answer.status in {200, 201}, answer.body
    plane.wait_until_ready()


def manifest(requirement: Requirement) -> dict[str, Any]:
    if not isinstance(requirement, CustomResource):
        api_version = f"{requirement.group}/{requirement.version}"
        return {"apiVersion": api_version, "kind": "DeviceClass", "metadata": {"name": requirement.name}, "spec": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": requirement.name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": requirement.group,
            "scope": "Namespaced",
            "names": {"plural": requirement.plural, "kind": requirement.plural.capitalize()},
            "versions": [
                {
                    "name": requirement.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def provided(binaries: Binaries) -> Iterator[ControlPlane]:
    """A cluster of its own that meets all requirements of the stack Standard; tests leave it so."""
    with ControlPlane(binaries) as plane:
        provide(plane, STANDARD)
        yield plane


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig whose server refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        file = tmp_path / "nowhere"
        write(file, f"https://127.0.0.1:{taken.getsockname()[1]}", {"token": "some-token"})
        yield file


def write(
    file: Path,
    server: str,
    user: Mapping[str, Any],
    trust: Mapping[str, str] | None = None,
    *,
    name: str = "local",
    current: bool = True,
) -> Path:
    """A kubeconfig in which everything has the same name."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, **(trust or {})}}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    file.write_text(yaml.safe_dump(content | ({"current-context": name} if current else {})), "utf-8")
    return file


def ca(plane: ControlPlane) -> dict[str, str]:
    return {"certificate-authority-data": base64.b64encode(plane.ca).decode()}


def credential(plane: ControlPlane) -> dict[str, str]:
    user: dict[str, str] = json.loads(plane.kubeconfig.read_text("utf-8"))["users"][0]["user"]
    return user


def counted(output: str, printed: str) -> tuple[int, int]:
    """How many requirements a document says are missing, and how many cannot be told."""
    if output in {"json", "yaml"}:
        summary = (json.loads if output == "json" else yaml.safe_load)(printed)["summary"]
        return summary["missing"], summary["unknown"]
    if output == "junit":
        root = ET.fromstring(printed)  # noqa: S314 - our own
        return int(root.get("failures", "")), int(root.get("errors", ""))
    if output == "sarif":
        levels = [each["level"] for each in json.loads(printed)["runs"][0]["results"]]
        return levels.count("error"), levels.count("warning")
    (summary,) = re.findall(r"\d+ of \d+ requirements met(?:, (\d+) missing)?(?:, (\d+) cannot be told)?", printed)
    missing, unknown = (int(number or 0) for number in summary)
    return missing, unknown


@pytest.mark.parametrize("output", FORMATS)
def test_all_met(output: str, provided: ControlPlane) -> None:
    done = check(provided.kubeconfig, "-o", output)
    assert (done.returncode, done.stderr, counted(output, done.stdout)) == (0, "", (0, 0))


@pytest.mark.parametrize("output", FORMATS)
def test_something_missing(output: str, provided: ControlPlane) -> None:
    done = check(provided.kubeconfig, "-o", output, "--stack", "dynamo")
    assert (done.returncode, done.stderr, counted(output, done.stdout)) == (1, "", (2, 0))


@pytest.mark.parametrize("output", FORMATS)
def test_an_unreachable_server(output: str, nowhere: Path) -> None:
    done = check(nowhere, "-o", output)
    assert (done.returncode, done.stderr, counted(output, done.stdout)) == (3, "", (0, len(STANDARD)))
    assert "refused the connection" in done.stdout or output == "sarif"
    assert "some-token" not in done.stdout


@pytest.mark.parametrize("output", ["text", "sarif"])
def test_no_kubeconfig_at_all(output: str, tmp_path: Path) -> None:
    done = check(tmp_path / "none", "-o", output)
    assert (done.returncode, done.stderr, counted(output, done.stdout)) == (3, "", (0, len(STANDARD)))


def test_says_which_cluster_it_was(provided: ControlPlane) -> None:
    data = json.loads(check(provided.kubeconfig, "-o", "json").stdout)
    assert (data["context"], data["server"], data["stack"]) == ("local", provided.server, "Standard")
    assert data["kubernetesVersion"].startswith("v1.")
    assert [each["key"] for each in data["components"]] == [
        each.key for each in of_stack(Stack.STANDARD) if each.requirements
    ]


def test_a_bare_cluster_lacks_everything(clean: ControlPlane) -> None:
    done = check(clean.kubeconfig)
    assert (done.returncode, counted("text", done.stdout)) == (1, (len(STANDARD), 0))
    hints = [component.hint for component in of_stack(Stack.STANDARD) if component.requirements]
    said = " ".join(done.stdout.split())
    assert [said.count(f"Hint: {hint}") for hint in hints] == [1] * len(hints)


def test_without_rights_it_says_which_right_is_missing(clean: ControlPlane) -> None:
    done = check(clean.kubeconfig_for("nobody"))
    assert (done.returncode, counted("text", done.stdout)) == (3, (0, len(STANDARD)))
    said = " ".join(done.stdout.split())
    assert 'user "nobody" has no right to get customresourcedefinitions.apiextensions.k8s.io' in said
    assert 'user "nobody" has no right to get deviceclasses.resource.k8s.io' in said
    assert "  kubectl auth can-i get customresourcedefinitions.apiextensions.k8s.io\n" in done.stdout
    assert "  kubectl auth can-i get deviceclasses.resource.k8s.io\n" in done.stdout


def test_discovery_alone_needs_no_rights(provided: ControlPlane) -> None:
    done = check(provided.kubeconfig_for("anybody"), "-o", "json")
    assert (done.returncode, counted("json", done.stdout)) == (3, (0, 1))


def test_the_right_to_get_is_enough(clean: ControlPlane) -> None:
    rules = [
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["deviceclasses"], "verbs": ["get"]},
    ]
    done = check(clean.kubeconfig_for("reader", rules=rules), "-o", "json")
    assert (done.returncode, counted("json", done.stdout)) == (1, (len(STANDARD), 0))


def test_a_refused_credential_cannot_tell(provided: ControlPlane, tmp_path: Path) -> None:
    file = write(tmp_path / "expired", provided.server, {"token": "no-such-token"}, ca(provided))
    done = check(file)
    assert (done.returncode, done.stderr) == (3, "")
    assert "the server did not accept the credential" in done.stdout
    assert "  kubectl auth whoami\n" in done.stdout
    assert "no-such-token" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--context", "elsewhere"], 'no context "elsewhere"; its contexts are: local'),
        (["--kubeconfig", "/no/such/file"], "'/no/such/file' does not exist"),
        (["--stack", "Other"], "'Other' is not one of"),
        (["--wait", "soon"], "'soon' is no duration"),
        (["--nonsense"], "No such option"),
        (["surplus"], "unexpected extra argument"),
    ],
    ids=["context", "file", "stack", "duration", "flag", "argument"],
)
def test_wrong_use(arguments: list[str], complaint: str, provided: ControlPlane) -> None:
    done = check(provided.kubeconfig, "-o", "json", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_a_bug_is_told_apart(provided: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import functions.judge\nfunctions.judge.judge = None\n", "utf-8")
    done = check(provided.kubeconfig, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (70, "")
    assert "This is a bug" in done.stderr.splitlines()[-1]


def test_quiet_is_silent_when_all_is_met(provided: ControlPlane) -> None:
    done = check(provided.kubeconfig, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_quiet_shows_only_what_is_missing(provided: ControlPlane) -> None:
    done = check(provided.kubeconfig, "--quiet", "--stack", "Dynamo", "--wait", "10ms")
    assert (done.returncode, done.stderr) == (1, "")
    marked = [line for line in done.stdout.splitlines() if line.startswith(tuple(MARKS.values()))]
    assert marked == [
        f"{MARKS[Outcome.MISSING]} CRD podcliquesets.grove.io serving v1alpha1",
        f"{MARKS[Outcome.MISSING]} CRD queues.scheduling.run.ai serving v2",
    ]


def test_an_output_that_nobody_reads(provided: ControlPlane) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [PROGRAM, "check"], env=environment(provided.kubeconfig), stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_output_that_cannot_show_the_marks(provided: ControlPlane) -> None:
    done = check(provided.kubeconfig, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{ASCII_MARKS[Outcome.MET]} CRD certificates.cert-manager.io serving v1\n" in done.stdout


def test_waits_until_all_is_met(clean: ControlPlane) -> None:
    provide(clean, tuple(each for each in STANDARD if each not in {BUNDLES, GPU}))
    process = waiting(clean.kubeconfig)
    provide(clean, (BUNDLES, GPU))
    printed, progress = process.communicate(timeout=60)
    assert (process.returncode, counted("text", printed)) == (0, (0, 0))
    turned = {line for line in progress.splitlines() if line.startswith(MARKS[Outcome.MET])}
    assert turned == {f"{MARKS[Outcome.MET]} {each}: met" for each in (BUNDLES, GPU)}


def test_notices_what_goes_while_it_waits(clean: ControlPlane) -> None:
    provide(clean, (BUNDLES, GPU))
    process = waiting(clean.kubeconfig)
    assert process.stderr is not None
    for each in (GPU, BUNDLES):
        assert clean.api.request("DELETE", path(each)).status == 200
        while str(each) not in (line := process.stderr.readline()):
            assert line, "it ended before it noticed"
        assert line.startswith(MARKS[Outcome.MISSING])
    process.kill()
    process.communicate(timeout=60)


def test_does_not_wait_for_what_is_met(provided: ControlPlane) -> None:
    done = check(provided.kubeconfig, "--wait", "1h")
    assert (done.returncode, done.stderr) == (0, "")


class Recording(Client):
    """A client that remembers what was asked."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **more: Any) -> Reply:
        self.asked.append(f"{method} {path}")
        return await super().request(method, path, **more)


async def test_waiting_asks_only_for_what_can_have_changed(provided: ControlPlane) -> None:
    client = Recording(kubeconfig.from_files([provided.kubeconfig]))
    cluster = _Cluster(client, _Options(Stack.DYNAMO, "kubectl", wait=60.0, quiet=True))
    try:
        report = await cluster.look_again(await cluster.look())
        client.asked.clear()
        assert await cluster.look_again(report) == report
    finally:
        await client.close()
    assert report.outcome is Outcome.MISSING
    assert sorted(client.asked) == ["GET /apis", f"GET {path(GPU)}"]


def test_waits_no_longer_than_it_should(clean: ControlPlane) -> None:
    done = check(clean.kubeconfig, "--wait", "100ms", "-o", "json")
    assert (done.returncode, counted("json", done.stdout)) == (1, (len(STANDARD), 0))


def test_waits_for_a_server_that_is_not_there_yet(start_control_plane: StartControlPlane, tmp_path: Path) -> None:
    plane = start_control_plane(tmp_path / "plane")
    provide(plane, STANDARD)
    plane.kill_api_server()
    process = waiting(plane.kubeconfig)
    plane.start_api_server()
    printed, _ = process.communicate(timeout=60)
    assert (process.returncode, counted("text", printed)) == (0, (0, 0))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Lets children die of Ctrl-C, which those of a background job do not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("output", ["text", "json"])
def test_an_interrupted_wait_prints_what_was_seen_last(output: str, clean: ControlPlane) -> None:
    process = waiting(clean.kubeconfig, "-o", output)
    process.send_signal(signal.SIGINT)
    printed, progress = process.communicate(timeout=60)
    assert (process.returncode, counted(output, printed)) == (130, (len(STANDARD), 0))
    assert "Traceback" not in progress


def test_contexts_from_a_list_of_files(provided: ControlPlane, nowhere: Path, tmp_path: Path) -> None:
    second = write(
        tmp_path / "second",
        provided.server,
        credential(provided),
        ca(provided),
        name="gpu-2",
    )
    both = f"{nowhere}{os.pathsep}{tmp_path / 'missing'}{os.pathsep}{second}"
    assert check(both).returncode == 3, "the first file's current context counts"
    done = check(both, "--context", "gpu-2", "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["context"]) == (0, "gpu-2")
    assert check(both, "--kubeconfig", str(second)).returncode == 0, "--kubeconfig wins over KUBECONFIG"


def test_no_current_context(provided: ControlPlane, tmp_path: Path) -> None:
    file = write(tmp_path / "none-current", provided.server, credential(provided), current=False)
    done = check(file)
    assert (done.returncode, done.stderr) == (3, "")
    assert "has no current-context; its contexts are: local" in " ".join(done.stdout.split())


def test_a_ca_file_beside_the_kubeconfig(provided: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(provided.ca)
    file = write(tmp_path / "with-ca-file", provided.server, credential(provided), {"certificate-authority": "ca.crt"})
    assert check(file).returncode == 0


@pytest.mark.parametrize(("script", "code"), [("echo '{}'", 0), ("exit 7", 3)], ids=["gives", "fails"])
def test_a_credential_helper(script: str, code: int, provided: ControlPlane, tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1"
    given = {"apiVersion": version, "kind": "ExecCredential", "status": credential(provided)}
    helper = tmp_path / "helper"
    helper.write_text("#!/bin/sh\n" + script.replace("{}", json.dumps(given)) + "\n", "utf-8")
    helper.chmod(0o700)
    user = {"exec": {"apiVersion": version, "command": "./helper", "interactiveMode": "Never"}}
    file = write(tmp_path / "with-helper", provided.server, user, ca(provided))
    done = check(file)
    assert (done.returncode, done.stderr) == (code, "")
    assert ("ended with exit code 7" in " ".join(done.stdout.split())) == (code == 3)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("100ms", 0.1), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "-5s", "s", "5 s", "5d", "m5", "1000000000h"])
def test_no_durations(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("variables", "colour", "in_place"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False, True),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, False, False),
    ],
    ids=["terminal", "no-color", "empty-no-color", "dumb"],
)
def test_colour_is_for_terminals_that_want_it(
    *, variables: dict[str, str], colour: bool, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    master, slave = os.openpty()
    try:
        with os.fdopen(slave, "w", encoding="utf-8") as stream:
            terminal = Terminal.of(stream)
    finally:
        os.close(master)
    assert (terminal.colour, terminal.in_place, terminal.width) == (colour, in_place, 80)
