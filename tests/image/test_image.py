"""The container image: what is in it, and that it runs as deploy/knative runs it, with no right more."""

from __future__ import annotations

import errno
import subprocess
import tarfile
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import yaml

from events import types
from functions.deploy_files import deploy_directory
from functions.local.certificates import Authority
from tests.image.conftest import PORT, RESTRICTED, ROOT
from tests.image.locks import pins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.image.conftest import Image, Start

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CHANGED = "dev.knative.apiserver.ref.update"
OF_A_CLUSTER = {"kind": "InferenceCluster", "name": "gpu-1"}
NOWHERE = "127.0.0.1:1"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
HOME = "/opt/serving-stack"
PACKAGES = f"{HOME[1:]}/lib/python3.11/site-packages"
HOLDS_WHATEVER_THE_SOURCE = (1).to_bytes(4, "little")  # PEP 552's flags: found by a hash that is not checked
JOURNAL = "/var/lib/serving-stack/events.jsonl"
# Bytes on top of the base: 81 MB are ours and the dependencies, 12 MB Python's own library compiled.
MOST_ADDED = 100_000_000


@dataclass(frozen=True)
class Deployed:
    """A container of ours as deploy/knative has it."""

    name: str
    container: dict[str, Any]

    @property
    def env(self) -> dict[str, str]:
        return {each["name"]: each["value"] for each in self.container.get("env", ())}

    @property
    def mounts(self) -> tuple[str, ...]:
        return tuple(each["mountPath"] for each in self.container.get("volumeMounts", ()))


def deployed(file: str, kind: str) -> list[Deployed]:
    manifests = yaml.safe_load_all((deploy_directory() / "knative/base" / file).read_text())
    return [
        Deployed(each["metadata"]["name"], container)
        for each in manifests
        if each["kind"] == kind
        for container in each["spec"]["template"]["spec"]["containers"]
    ]


SERVICES = deployed("services.yaml", "Service")
SOURCES = deployed("sources.yaml", "ContainerSource")


@pytest.fixture
def account(tmp_path: Path) -> dict[Path, str]:
    """What a pod is given of its ServiceAccount."""
    for name, content in {"token": b"a-token", "ca.crt": Authority.new().certificate, "namespace": b"here"}.items():
        (tmp_path / name).write_bytes(content)
    tmp_path.chmod(0o755)
    return {tmp_path: ACCOUNT}


def in_a_pod() -> dict[str, str]:
    """What the kubelet says of an API server, here of one that is not there."""
    host, _, port = NOWHERE.partition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "PORT": str(PORT)}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Complete in itself, with a client certificate."""
    authority = Authority.new()
    certificate, key = authority.client("somebody")
    encoded = {name: b64encode(value).decode() for name, value in (("certificate", certificate), ("key", key))}
    server = {"server": f"https://{NOWHERE}", "certificate-authority-data": b64encode(authority.certificate).decode()}
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "hub",
                "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "hub"}}],
                "clusters": [{"name": "hub", "cluster": server}],
                "users": [{"name": "hub", "user": {f"client-{name}-data": value for name, value in encoded.items()}}],
            }
        )
    )
    path.chmod(0o644)
    return path


@pytest.fixture(scope="session")
def files(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tarfile.TarFile]:
    """Every file of the image, as a container sees them."""
    archive = tmp_path_factory.mktemp("image") / "files.tar"
    container = image.engine.docker("create", "--network", "none", image.name)
    try:
        image.engine.docker("export", "--output", archive, container)
    finally:
        image.engine.docker("rm", container)
    with tarfile.open(archive) as opened:
        yield opened
    archive.unlink()


def test_what_knative_is_told_of_it_holds_for_every_container() -> None:
    assert [each.name for each in SERVICES] == ["cluster", "probes", "compose", "journal", "dead-letters"]
    assert [each.name for each in SOURCES] == ["watch"]
    for each in (*SERVICES, *SOURCES):
        assert each.container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": RESTRICTED["read_only"],
            "runAsNonRoot": True,
            "capabilities": {"drop": RESTRICTED["cap_drop"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    assert {each.container["resources"]["limits"]["memory"] for each in SERVICES} == {"256Mi"}


def test_it_is_not_root_by_number(image: Image) -> None:
    config = image.inspect()["Config"]
    user, _, group = config["User"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert config["Entrypoint"] == [f"{HOME}/bin/serving-stack"]
    assert not config["Cmd"]
    assert list(config["ExposedPorts"]) == [f"{PORT}/tcp"]


def test_it_can_do_nothing_beyond_its_work(start: Start, kubeconfig: Path) -> None:
    running = start("serve", "--functions", "cluster", "--kubeconfig", "/kubeconfig", files={kubeconfig: "/kubeconfig"})
    running.ready()
    status = dict(
        line.split(":\t") for line in running.python("print(open('/proc/1/status').read())").splitlines() if line
    )
    assert set(status["Uid"].split()) == {"65532"}
    assert set(status["Gid"].split()) == {"65532"}
    assert {int(status[each], 16) for each in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    for place in ("/", "/tmp", HOME):  # noqa: S108 - not to be written
        tried = f"try: open({place!r} + '/x', 'w')\nexcept OSError as e: print(e.errno)"
        assert int(running.python(tried)) == errno.EROFS


def test_it_answers_as_a_broker_expects(start: Start, kubeconfig: Path) -> None:
    running = start("serve", env={"SERVING_STACK_KUBECONFIG": "/hub/kubeconfig"}, files={kubeconfig: "/hub/kubeconfig"})
    running.ready()
    assert running.request("GET", "/health/liveness")[0] == 200
    assert running.send("cluster", CHANGED, **OF_A_CLUSTER) == (503, f"hub: https://{NOWHERE} refused the connection")
    assert running.send("cluster", CHANGED, kind="InferenceCluster")[0] == 422  # which one?
    status, text = running.request("POST", "/cluster", "no event", {"Content-Type": "application/json"})
    assert (status, text.partition(":")[0]) == (422, "not a CloudEvent")
    published = running.container.get_wrapped_container()
    published.reload()
    assert [each["HostIp"] for each in published.ports[f"{PORT}/tcp"]] == ["127.0.0.1"]
    code, seconds = running.terminate()
    assert code == 0
    assert seconds < 5


@pytest.mark.parametrize("service", SERVICES, ids=lambda each: each.name)
def test_each_service_serves(start: Start, account: dict[Path, str], service: Deployed) -> None:
    env = {**service.env, **in_a_pod()}
    running = start(*service.container["args"], env=env, files=account, tmpfs=service.mounts)
    probe = service.container["readinessProbe"]["httpGet"]["path"]
    running.ready()
    assert running.request("GET", probe)[0] == 200
    log = [orjson.loads(line) for line in running.log().splitlines()]
    functions = next(each["functions"] for each in log if each["message"] == "listening")
    answers = {
        running.send(function, type_, cluster="gpu-1", **OF_A_CLUSTER)[0]
        for function in functions
        for type_ in (CHANGED, types.CHECK_REQUESTED)
    }
    if service.mounts:  # what only writes down needs no hub
        assert answers == {204}
    else:
        assert 503 in answers
        assert answers <= {204, 422, 503}
    assert running.terminate()[0] == 0


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.name)
def test_the_source_runs_until_it_is_told_to_end(start: Start, account: dict[Path, str], source: Deployed) -> None:
    env = {**source.env, **in_a_pod(), "K_SINK": f"http://{NOWHERE}"}
    running = start(*source.container["args"], env=env, files=account)
    running.says('"message":"watching"')
    code, seconds = running.terminate()
    assert code == 0, running.log()
    assert seconds < 5


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.name)
def test_the_source_without_a_sink_says_so(start: Start, account: dict[Path, str], source: Deployed) -> None:
    running = start(*source.container["args"], env={**source.env, **in_a_pod()}, files=account)
    assert running.ended() == 2
    assert "K_SINK is not set" in running.log()
    assert "Traceback" not in running.log()


def test_events_are_written_down(start: Start, account: dict[Path, str]) -> None:
    arguments = ("serve", "--functions", "journal", "--journal", JOURNAL)
    running = start(*arguments, env=in_a_pod(), files=account, tmpfs=(str(PurePosixPath(JOURNAL).parent),))
    running.ready()
    assert running.send("journal", CHANGED, **OF_A_CLUSTER)[0] == 204
    (line,) = running.python(f"print(open({JOURNAL!r}).read())").split()
    assert orjson.loads(line)["event"]["type"] == CHANGED


def test_it_is_ready_at_once(start: Start, kubeconfig: Path) -> None:
    running = start("serve", "--kubeconfig", "/kubeconfig", files={kubeconfig: "/kubeconfig"})
    running.ready()
    # Of processor time, for how long it takes depends on what else the machine does.
    used = "import os; print(sum(map(int, open('/proc/1/stat').read().split()[13:15])) / os.sysconf('SC_CLK_TCK'))"
    assert 0 < float(running.python(used)) < 1.5


def test_nothing_is_compiled_at_its_start(start: Start, kubeconfig: Path) -> None:
    running = start("serve", "--kubeconfig", "/kubeconfig", files={kubeconfig: "/kubeconfig"})
    running.ready()
    program = "import functions.host.serve, functions.watch.standalone, functions.cli.main, functions.access.oidc as o"
    loaded = running.python(f"{program}; o.lean_import('kubernetes_asyncio.config.openid')", "-v").splitlines()
    said = "# code object from "  # a quoted path where it was compiled before
    code = [line.removeprefix(said).strip("'") for line in loaded if line.startswith(said)]
    assert len(code) > 300
    assert [each for each in code if not each.endswith(".pyc")] == []


def test_every_module_is_compiled(files: tarfile.TarFile) -> None:
    members = {PurePosixPath(each.name): each for each in files.getmembers()}
    roots = {each.parent for each in members if each.name == "os.py"} | {PurePosixPath(PACKAGES)}
    modules = [each for each in members if each.suffix == ".py" and not roots.isdisjoint(each.parents)]
    assert {PurePosixPath(PACKAGES, each, "__init__.py") for each in ("events", "functions")} <= {*modules}
    assert len(modules) > 1000
    for each in modules:
        compiled = files.extractfile(members[each.parent / "__pycache__" / f"{each.stem}.cpython-311.pyc"])
        assert compiled is not None
        assert compiled.read(8)[4:] == HOLDS_WHATEVER_THE_SOURCE


def test_nothing_in_it_installs_or_builds(files: tarfile.TarFile) -> None:
    paths = [PurePosixPath(each) for each in files.getnames()]
    tools = {"pip", "pip3", "ensurepip", "setuptools", "wheel", "uv", "cc", "gcc", "g++", "c++", "clang", "ld", "make"}
    places = {"bin", "sbin", "site-packages", "dist-packages", "python3.11"}
    assert {each.parent.name for each in paths} >= {"bin", "sbin", "site-packages", "python3.11"}
    assert [each for each in paths if each.name in tools and each.parent.name in places] == []
    assert [each for each in paths if each.suffix == ".whl"] == []


def test_it_has_the_locked_dependencies_and_no_others(start: Start, kubeconfig: Path) -> None:
    running = start("serve", "--kubeconfig", "/kubeconfig", files={kubeconfig: "/kubeconfig"})
    program = "from importlib.metadata import distributions as d\nfor each in d(): print(each.name, each.version)"
    installed = dict(line.split() for line in running.python(program).splitlines())
    assert installed.pop("modelplane-serving-stack")
    locked = {name: pin.version for name, pin in pins(ROOT / "requirements-runtime.lock").items()}
    assert {name.lower().replace("_", "-"): version for name, version in installed.items()} == locked


def test_the_files_of_deploy_are_in_it(files: tarfile.TarFile) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z", "deploy"], cwd=ROOT, check=True, capture_output=True, text=True)
    names = tracked.stdout.split("\0")[:-1]
    assert "deploy/knative/base/services.yaml" in names
    for each in names:
        packed = files.extractfile(f"{PACKAGES}/functions/{each}")
        assert packed is not None
        assert packed.read() == (ROOT / each).read_bytes()


def test_no_file_of_ours_can_be_written(files: tarfile.TarFile) -> None:
    ours = [each for each in files.getmembers() if PurePosixPath("/", each.name).is_relative_to(HOME)]
    assert {(each.uid, each.gid) for each in ours} == {(0, 0)}
    assert [each.name for each in ours if not each.issym() and each.mode & 0o022] == []


def test_it_is_small(image: Image) -> None:
    assert image.added() < MOST_ADDED
