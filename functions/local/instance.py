"""One control plane: etcd, kube-apiserver and kube-controller-manager in a directory of their own.

Used by `serving-stack local up`, by `serving-stack demo` and by the tests; any number run side by side.
"""

from __future__ import annotations

import base64
import json
import random
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from functions.local import certificates
from functions.local.api import Api
from functions.local.directory import InstanceDirectory, write_private
from functions.local.errors import LocalError
from functions.local.processes import ProcessGroup, tail
from functions.local.rights import grant, service_account_token

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from functions.local.binaries import Binaries
    from functions.local.rights import Rule

# Below the ranges from which Linux and macOS take ports for outgoing connections, so that none of those
# takes the port of an API server that is about to start again.
_PORTS: Final = range(20_000, 32_000)
_PORT_TRIES: Final = 5
_READY_WITHIN: Final = 60.0
_STOP_WITHIN: Final = 10.0
_POLL: Final = 0.02
_IN_USE: Final = "address already in use"
_HOUR: Final = timedelta(hours=1)

# Those that tests and the demo can tell from their absence; nothing here has a node to run a pod on.
_CONTROLLERS: Final = (
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
)
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an API server listens that others than this machine's own processes reach, in a network of its own.

    Attributes:
        port: Its port on every address there.
        address: The one that it tells of itself.
        names: Further host names by which it is called.
        addresses: Further addresses.
    """

    port: int
    address: str
    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class ControlPlane:
    """A Kubernetes API server of one's own; a context manager that starts and stops it.

    Everything it starts ends with it, and at the latest with this process, also when that is killed.

    Args:
        binaries: The programs.
        directory: Where it lives; None for a temporary directory, from `start` to `stop`.
        audit: Log each request as a line of JSON to `audit_log`.
        detached: The servers outlive this process, until `InstanceDirectory.end`.
        place: Where the API server listens; None for a free port on 127.0.0.1.

    Attributes:
        directory: Where it lives.
        audit_log: The log of requests, where it was asked for.
    """

    def __init__(
        self,
        binaries: Binaries,
        directory: Path | None = None,
        *,
        audit: bool = False,
        detached: bool = False,
        place: Place | None = None,
    ) -> None:
        # Only a name until `start`; nobody can guess it.
        temporary = Path(tempfile.gettempdir(), f"serving-stack-{secrets.token_hex(8)}")
        self.directory = InstanceDirectory(directory or temporary)
        self._temporary = directory is None
        self.audit_log = self.directory.home / "audit.log"
        self._binaries = binaries
        self._audit = audit
        self._detached = detached
        self._place = place
        self._group: ProcessGroup | None = None
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._authority = certificates.Authority.new()
        self._token = secrets.token_hex(32)
        self._port = 0

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an admin, who authenticates with a token."""
        return self.directory.kubeconfig

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca(self) -> bytes:
        """The certificate, as PEM, of the authority that signed the API server's."""
        return self._authority.certificate

    @property
    def api(self) -> Api:
        """Requests to the API server as the admin."""
        return Api(port=self._port, ca=self.ca, token=self._token)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and return once it is ready: the API server says so, and discovery is complete.

        Raises:
            LocalError: Something runs in the directory, a server does not start, or it is taken down meanwhile; nothing
                is left behind then.
        """
        self.directory.claim()
        try:
            self._group = ProcessGroup(detached=self._detached)
            self._write_keys()
            self._spawn("etcd", self._etcd())
            self._start_on_free_port()
            self._start_controller_manager()
            if self._detached:
                self.directory.disown()
        except (OSError, LocalError) as error:
            taken_down = not self.directory.owned()
            self.stop()
            if taken_down:
                raise LocalError(
                    f"the control plane in {self.directory.root} was taken down while it started"
                ) from error
            raise
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill the servers and remove their files; harmless when it is stopped already, or was never started."""
        started = self._group is not None
        if self._group is not None:
            self._group.kill()
            self._group = None
            self._servers.clear()
        if started or self._temporary:
            self.directory.remove()

    def stop_api_server(self) -> None:
        """End the API server alone, with the grace that an upgrade would give it; killed after ten seconds."""
        process = self._servers["kube-apiserver"]
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill_api_server()

    def kill_api_server(self) -> None:
        """End the API server alone, in the midst of whatever it does."""
        self._servers["kube-apiserver"].kill()
        self._servers["kube-apiserver"].wait()

    def start_api_server(self, *, wait: bool = True) -> None:
        """Start the API server again after one of the two above, on the same port and with the same data.

        Args:
            wait: Return once it is ready; False returns at once, to see what a starting server answers.
        """
        self._spawn("kube-apiserver", self._api_server())
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the API server is ready and discovery lists every Established CRD.

        Raises:
            LocalError: It ends instead, or takes more than a minute.
        """
        self._wait("kube-apiserver", self.api.ready)

    def kubeconfig_for(
        self,
        name: str,
        *,
        groups: Sequence[str] = (),
        rules: Sequence[Rule] = (),
        credential: Literal["certificate", "token"] = "certificate",
        lifetime: timedelta = _HOUR,
    ) -> Path:
        """The kubeconfig of a user with exactly these rights, and those of the groups.

        Args:
            name: The user; asked for again, the rights are replaced and the credential is a new one.
            groups: Further groups; a user has no others than system:authenticated. Only with a certificate.
            rules: PolicyRules that hold in the whole cluster.
            credential: A client certificate, or the token of a ServiceAccount `name` in namespace default.
            lifetime: Of a token, at least ten minutes.
        """
        if credential == "certificate":
            certificate, key = self._authority.client(name, groups)
            user, known_as = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}, name
        elif groups:
            raise ValueError("the groups of a ServiceAccount are given by Kubernetes")
        else:
            token = service_account_token(self.api, name, seconds=int(lifetime.total_seconds()))
            user, known_as = {"token": token}, f"system:serviceaccount:default:{name}"
        grant(self.api, name, known_as, rules)
        path = self.directory.home / f"{name.replace(':', '-')}.kubeconfig"
        self._write_kubeconfig(path, name, user)
        return path

    def _start_on_free_port(self) -> None:
        for tries_left in reversed(range(_PORT_TRIES)):
            self._port = self._place.port if self._place else free_port()
            self._spawn("kube-apiserver", self._api_server())
            try:
                self.wait_until_ready()
            except LocalError as error:
                if tries_left and self._place is None and _IN_USE in str(error):
                    continue
                raise
            self._write_kubeconfig(self.kubeconfig, "admin", {"token": self._token})
            return

    def _start_controller_manager(self) -> None:
        certificate, key = self._authority.client("system:kube-controller-manager", ["system:masters"])
        credential = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
        self._write_kubeconfig(self.directory.home / "kube-controller-manager.kubeconfig", "manager", credential)
        self._spawn("kube-controller-manager", self._controller_manager())
        # As long as it waits for its first answer, it would exit with an API server that is stopped.
        self._wait("kube-controller-manager", self.api.controlled)

    def _wait(self, server: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while not ready():
            for name, process in self._servers.items():
                if process.poll() is not None:
                    raise LocalError(f"{name} exited with {process.returncode}:\n{tail(self.directory.log(name))}")
            if time.monotonic() > deadline:
                log = tail(self.directory.log(server))
                raise LocalError(f"{server} is not ready after {_READY_WITHIN:.0f} s; it said last:\n{log}")
            time.sleep(_POLL)

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        if self._group is None:
            raise LocalError("this control plane was not started")
        with self.directory.log(name).open("ab") as log:
            # Sockets are named relative to the working directory: a path to one must be short, and this one may not be.
            process = self._group.spawn(command, cwd=self.directory.home, output=log)
        self._servers[name] = process
        self.directory.record(name, process.pid)

    def _write_keys(self) -> None:
        place = self._place
        alternatives = {"names": place.names, "addresses": (place.address, *place.addresses)} if place else {}
        serving, serving_key = self._authority.serving(**alternatives)
        files = {
            "ca.crt": self.ca,
            "serving.crt": serving,
            "serving.key": serving_key,
            "service-accounts.key": certificates.private_key(),
            "tokens.csv": f'{self._token},admin,admin,"system:masters"\n'.encode(),
            "audit-policy.json": json.dumps(_AUDIT_POLICY).encode(),
        }
        for name, content in files.items():
            write_private(self.directory.home / name, content)

    def _write_kubeconfig(self, path: Path, user: str, credential: Mapping[str, str]) -> None:
        cluster = {"server": self.server, "certificate-authority-data": _base64(self.ca)}
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": user, "user": credential}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
            "current-context": "local",
        }
        # JSON is YAML, and needs no library.
        write_private(path, json.dumps(content, indent=2).encode())

    def _etcd(self) -> list[str]:
        # Unix sockets: no port to clash, and no other user of the machine gets at the data.
        client, peer = "unix://etcd.sock", "unix://etcd-peer.sock"
        return [
            str(self._binaries.etcd),
            "--data-dir=etcd",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _api_server(self) -> list[str]:
        flags = [
            f"--bind-address={'0.0.0.0' if self._place else '127.0.0.1'}",  # noqa: S104 - all of a network of its own
            f"--secure-port={self._port}",
            f"--advertise-address={self._place.address if self._place else '127.0.0.1'}",
            "--endpoint-reconciler-type=none",
            "--etcd-servers=unix://etcd.sock",
            "--tls-cert-file=serving.crt",
            "--tls-private-key-file=serving.key",
            "--client-ca-file=ca.crt",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=service-accounts.key",
            "--service-account-signing-key-file=service-accounts.key",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--profiling=false",
            # Without it, watches in progress hold up a graceful end for a minute.
            "--shutdown-watch-termination-grace-period=1s",
        ]
        if self._audit:
            flags += ["--audit-policy-file=audit-policy.json", f"--audit-log-path={self.audit_log.name}"]
        return [str(self._binaries.kube_apiserver), *flags]

    def _controller_manager(self) -> list[str]:
        return [
            str(self._binaries.kube_controller_manager),
            "--kubeconfig=kube-controller-manager.kubeconfig",
            "--secure-port=0",
            "--leader-elect=false",
            f"--controllers={','.join(_CONTROLLERS)}",
            "--service-account-private-key-file=service-accounts.key",
            "--root-ca-file=ca.crt",
        ]


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on, and that no outgoing connection is given."""
    for _ in range(100):
        port = random.choice(_PORTS)  # noqa: S311 - spreads instances, protects nothing
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise LocalError(f"no free port between {_PORTS.start} and {_PORTS.stop} on 127.0.0.1")


def _base64(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
