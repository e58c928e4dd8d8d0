"""A control plane starts, serves as a cluster does, and goes without a trace."""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import shlex
import signal
import socket
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from functions.deploy_files import deploy_directory
from functions.local import instance
from functions.local.api import Api
from functions.local.certificates import Authority
from functions.local.directory import InstanceDirectory
from functions.local.errors import LocalError
from functions.local.instance import ControlPlane
from functions.local.processes import Identity

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from functions.local.binaries import Binaries
    from tests.conftest import StartControlPlane

_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
_PODS_PATH = "/api/v1/namespaces/default/pods"
_PARENT = """
import json, pathlib, sys
from functions.local.binaries import Binaries
from functions.local.instance import ControlPlane
binaries = Binaries(*(pathlib.Path(path) for path in {binaries!r}))
with ControlPlane(binaries, pathlib.Path({directory!r})) as control_plane:
    print((control_plane.directory.home / "processes.json").read_text().replace("\\n", ""), flush=True)
    sys.stdin.read()
"""


def _pids(control_plane: ControlPlane) -> list[int]:
    servers = json.loads((control_plane.directory.home / "processes.json").read_text())["servers"]
    return [server["pid"] for server in servers.values()]


def _handshake(control_plane: ControlPlane, context: ssl.SSLContext, name: str = "127.0.0.1") -> None:
    port = int(control_plane.server.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as connection,
        context.wrap_socket(connection, server_hostname=name),
    ):
        pass


def _status(control_plane: ControlPlane, kubeconfig: Path, path: str) -> int:
    """The status that a user of a kubeconfig gets, by certificate or by token."""
    user = json.loads(kubeconfig.read_text())["users"][0]["user"]
    context = ssl.create_default_context(cadata=control_plane.ca.decode())
    if "client-key-data" in user:
        with tempfile.NamedTemporaryFile() as both:
            both.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
            both.flush()
            context.load_cert_chain(both.name)
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    connection = http.client.HTTPSConnection(control_plane.server.removeprefix("https://"), timeout=5, context=context)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def _until(control_plane: ControlPlane, path: str, status: int) -> None:
    deadline = time.monotonic() + 30
    while (found := control_plane.api.request("GET", path).status) != status:
        assert time.monotonic() < deadline, f"{path} is {found}"


def _crd(group: str) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"kind": "Thing", "plural": "things"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {"group": group, "names": names, "scope": "Cluster", "versions": [version]},
    }


def test_it_starts_in_seconds_and_leaves_nothing(binaries: Binaries, tmp_path: Path) -> None:
    # Deeper than the path of a Unix socket may be long.
    directory = tmp_path / ("x" * 120)
    began = time.monotonic()
    with ControlPlane(binaries, directory) as control_plane:
        print(f"\ncontrol plane ready after {time.monotonic() - began:.2f} s")  # noqa: T201 - a figure for the reader
        pids = _pids(control_plane)
        assert len(pids) == 3
        assert all(Identity.of(pid) for pid in pids)
        assert control_plane.kubeconfig == directory / "kubeconfig"
        assert control_plane.kubeconfig.stat().st_mode & 0o077 == 0
        assert Api.of(control_plane.kubeconfig).ready()
    control_plane.stop()  # a second time, which is harmless
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not directory.exists()


def test_only_its_own_authority_vouches_for_it(control_plane: ControlPlane) -> None:
    right = ssl.create_default_context(cadata=control_plane.ca.decode())
    right.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("127.0.0.1", "localhost"):
        _handshake(control_plane, right, name)
    other = ssl.create_default_context(cadata=Authority.new().certificate.decode())
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(control_plane, other)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(control_plane, ssl.create_default_context())
    with pytest.raises(ssl.SSLCertVerificationError, match=r"doesn't match|mismatch"):
        _handshake(control_plane, right, "example.com")


def test_a_wrong_token_is_not_accepted(control_plane: ControlPlane) -> None:
    port = int(control_plane.server.rpartition(":")[2])
    assert Api(port=port, ca=control_plane.ca, token="wrong").request("GET", "/api").status == 401


@pytest.mark.parametrize("credential", ["certificate", "token"])
def test_lesser_rights_are_exactly_these(credential: Any, control_plane: ControlPlane) -> None:
    kubeconfig = control_plane.kubeconfig_for(f"lister-{credential}", rules=[_PODS], credential=credential)
    assert kubeconfig.stat().st_mode & 0o077 == 0
    assert _status(control_plane, kubeconfig, _PODS_PATH) == 200
    assert _status(control_plane, kubeconfig, "/api/v1/secrets") == 403
    assert _status(control_plane, kubeconfig, "/apis") == 200


def test_a_user_without_rules_has_no_rights(control_plane: ControlPlane) -> None:
    assert _status(control_plane, control_plane.kubeconfig_for("nobody"), _PODS_PATH) == 403


def test_groups_bring_their_rights(control_plane: ControlPlane) -> None:
    kubeconfig = control_plane.kubeconfig_for("root", groups=["system:masters"])
    assert _status(control_plane, kubeconfig, "/api/v1/secrets") == 200


def test_a_user_asked_for_again_has_the_new_rights_and_a_new_credential(control_plane: ControlPlane) -> None:
    first = control_plane.kubeconfig_for("changing", credential="token").read_text()
    url = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    again = control_plane.kubeconfig_for("changing", rules=[url], credential="token")
    assert again.read_text() != first
    assert _status(control_plane, again, "/metrics") == 200


def test_a_service_account_has_no_other_groups(control_plane: ControlPlane) -> None:
    with pytest.raises(ValueError, match="groups of a ServiceAccount"):
        control_plane.kubeconfig_for("someone", groups=["a"], credential="token")


def test_a_rule_that_the_api_server_refuses_is_an_error(control_plane: ControlPlane) -> None:
    with pytest.raises(LocalError, match=r"the API server answered 422: .*verbs"):
        control_plane.kubeconfig_for("broken", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": []}])


def test_several_run_side_by_side(start_control_plane: StartControlPlane, tmp_path: Path) -> None:
    first, second = start_control_plane(tmp_path / "1", audit=True), start_control_plane(tmp_path / "2")
    assert first.server != second.server
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-here"}}
    assert first.api.request("POST", "/api/v1/namespaces", manifest).status == 201
    assert second.api.request("GET", "/api/v1/namespaces/only-here").status == 404
    # One has an audit log, which has what was asked of it and by whom.
    entries = [json.loads(line) for line in first.audit_log.read_text().splitlines()]
    creations = [entry for entry in entries if entry["verb"] == "create" and entry["user"]["username"] == "admin"]
    assert [entry["objectRef"]["resource"] for entry in creations] == ["namespaces"]
    assert not second.audit_log.exists()
    first.stop()
    assert second.api.ready()


def test_the_api_server_comes_back_as_it_was(start_control_plane: StartControlPlane) -> None:
    control_plane = start_control_plane()
    server = control_plane.server
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert control_plane.api.request("POST", crds, _crd("example.com")).status == 201
    for end in (control_plane.stop_api_server, control_plane.kill_api_server, control_plane.kill_api_server):
        control_plane.wait_until_ready()
        end()
        with pytest.raises(ConnectionRefusedError):
            control_plane.api.request("GET", "/readyz")
        assert not control_plane.api.ready()
        control_plane.start_api_server()
        assert control_plane.server == server
        # 429 for a moment, while the storage of the CRD is made ready.
        _until(control_plane, "/apis/example.com/v1/things", 200)
    control_plane.kill_api_server()
    control_plane.start_api_server(wait=False)
    assert not control_plane.api.ready()
    control_plane.wait_until_ready()


def test_a_namespace_comes_with_its_account_and_goes_with_its_content(clean: ControlPlane) -> None:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "short-lived"}}
    clean.api.request("POST", "/api/v1/namespaces", manifest)
    _until(clean, "/api/v1/namespaces/short-lived/serviceaccounts/default", 200)
    _until(clean, "/api/v1/namespaces/short-lived/configmaps/kube-root-ca.crt", 200)
    clean.api.request("DELETE", "/api/v1/namespaces/short-lived")
    _until(clean, "/api/v1/namespaces/short-lived", 404)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_it_ends_with_the_process_that_started_it(
    number: signal.Signals,
    binaries: Binaries,
    tmp_path: Path,
    start_python: Callable[[str], subprocess.Popen[str]],
    wait_gone: Callable[[int], None],
) -> None:
    programs = [str(program) for program in dataclasses.astuple(binaries)]
    parent = start_python(_PARENT.format(binaries=programs, directory=str(tmp_path / "place")))
    assert parent.stdout is not None
    pids = [server["pid"] for server in json.loads(parent.stdout.readline())["servers"].values()]
    assert all(Identity.of(pid) for pid in pids)
    parent.send_signal(number)
    for pid in pids:
        wait_gone(pid)
    parent.communicate(timeout=30)
    place = InstanceDirectory(tmp_path / "place")
    assert not place.status().in_use
    # What a killed one left does not stop the next.
    place.claim()
    place.end()
    assert not place.root.exists()


def test_a_server_that_does_not_start_is_named_and_nothing_is_left(binaries: Binaries, tmp_path: Path) -> None:
    program = tmp_path / "kube-apiserver"
    program.write_text("#!/bin/sh\necho out of luck\nexit 7\n")
    program.chmod(0o755)
    control_plane = ControlPlane(dataclasses.replace(binaries, kube_apiserver=program), tmp_path / "place")
    with pytest.raises(LocalError, match=r"^kube-apiserver exited with 7:\nout of luck$"):
        control_plane.start()
    assert not (tmp_path / "place").exists()


def test_a_temporary_directory_is_there_from_start_to_stop(binaries: Binaries) -> None:
    control_plane = ControlPlane(binaries)
    assert not control_plane.directory.root.exists()
    control_plane.stop()
    with control_plane:
        assert control_plane.kubeconfig.exists()
    assert not control_plane.directory.root.exists()


def test_one_that_is_taken_down_while_it_starts_says_so(binaries: Binaries, tmp_path: Path) -> None:
    program = tmp_path / "kube-apiserver"
    place = tmp_path / "place"
    down = shlex.join([sys.executable, "-m", "functions", "local", "down", "--dir", str(place)])
    program.write_text(f"#!/bin/sh\ncd {deploy_directory().parent} && {down} & exec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(LocalError, match=r"^the control plane in \S+ was taken down while it started$"):
        ControlPlane(dataclasses.replace(binaries, kube_apiserver=program), place).start()
    assert not place.exists()


def test_a_port_that_is_taken_meanwhile_is_left_to_its_owner(
    binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_port = instance.free_port
    with socket.create_server(("127.0.0.1", free_port())) as owner:
        taken = owner.getsockname()[1]
        choices = iter([taken])
        monkeypatch.setattr(instance, "free_port", lambda: next(choices, None) or free_port())
        with ControlPlane(binaries, tmp_path / "place") as control_plane:
            assert control_plane.server != f"https://127.0.0.1:{taken}"
            assert control_plane.api.ready()


def test_a_directory_in_use_is_refused(control_plane: ControlPlane, binaries: Binaries) -> None:
    with pytest.raises(LocalError, match="a control plane is running in"):
        ControlPlane(binaries, control_plane.directory.root).start()
    assert control_plane.api.ready()
