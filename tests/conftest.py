"""Fixtures for every test: a real control plane, more of them on request, and a way to leave none the worse."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from functions.local.binaries import find_binaries
from functions.local.instance import ControlPlane
from tests.support import install_hub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from functions.local.api import Api
    from functions.local.binaries import Binaries

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# What a test may leave behind, in the order in which it is removed.
_KINDS = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/apiregistration.k8s.io/v1/apiservices",
    "/apis/resource.k8s.io/v1/deviceclasses",
    _CRDS,
    "/api/v1/namespaces",
)


class StartControlPlane(Protocol):
    """Starts a control plane of the test's own, which ends with the test."""

    def __call__(self, directory: Path | None = None, *, audit: bool = False) -> ControlPlane: ...


def pytest_configure() -> None:
    """Takes signals as usual, so that each process that a test starts does.

    A job that a shell runs in the background ignores Ctrl-C, and one under nohup a hang-up.
    """
    usual: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGTERM: signal.SIG_DFL,
    }
    for number, handler in usual.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The programs of the control plane."""
    return find_binaries()


@pytest.fixture(scope="session")
def control_plane(binaries: Binaries) -> Iterator[ControlPlane]:
    """The control plane that all tests of the session share; with it, use `clean`."""
    with ControlPlane(binaries) as shared:
        yield shared


@pytest.fixture(scope="session")
def kubeconfig(control_plane: ControlPlane) -> Path:
    """The admin's kubeconfig of the shared control plane."""
    return control_plane.kubeconfig


@pytest.fixture
def start_control_plane(binaries: Binaries) -> Iterator[StartControlPlane]:
    """For tests that stop a server, read the audit log, or need two clusters."""
    with ExitStack() as running:

        def start(directory: Path | None = None, *, audit: bool = False) -> ControlPlane:
            return running.enter_context(ControlPlane(binaries, directory, audit=audit))

        yield start


@pytest.fixture
def clean(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shared control plane, from which everything that the test adds is removed again.

    That is CRDs and the objects of every CRD, namespaces, DeviceClasses, APIServices and webhook configurations.
    """
    before = _everything(control_plane.api)
    yield control_plane
    _remove_all_but(before, control_plane.api)


@pytest.fixture(scope="session")
def hub_once(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane with the project's CRDs and the namespace of the kubeconfig Secrets, which stay."""
    install_hub(control_plane.api)
    control_plane.wait_until_ready()
    return control_plane


@pytest.fixture
def hub(hub_once: ControlPlane, clean: ControlPlane) -> ControlPlane:
    """A hub without any cluster; what the test adds is removed again, as with `clean`."""
    assert clean is hub_once
    return clean


@pytest.fixture
def wait_gone() -> Callable[[int], None]:
    """Waits until a process has ended, whoever its parent is; fails after ten seconds."""

    def wait(pid: int) -> None:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            ended, _, _ = select.select([process], [], [], 10)
        finally:
            os.close(process)
        assert ended, f"process {pid} still runs"

    return wait


@pytest.fixture
def start_python() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a program in a new Python, with pipes to all three streams; killed at the end if need be."""
    with ExitStack() as stack:

        def start(program: str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return process

        yield start


def _everything(api: Api) -> dict[str, bool]:
    """The path of each object that `clean` looks after, and whether it has finalizers; instances come first."""
    resources = []
    for crd in api.request("GET", _CRDS).body["items"]:
        version = next(one["name"] for one in crd["spec"]["versions"] if one["served"])
        names, group = crd["spec"]["names"], crd["spec"]["group"]
        resources.append((f"/apis/{group}/{version}", names["plural"]))
    resources += [(base, plural) for base, _, plural in (kind.rpartition("/") for kind in _KINDS)]
    found = {}
    for base, plural in resources:
        for item in api.request("GET", f"{base}/{plural}").body.get("items", ()):
            meta = item["metadata"]
            if "kube-aggregator.kubernetes.io/automanaged" not in meta.get("labels", {}):
                inside = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
                found[f"{base}/{inside}{plural}/{meta['name']}"] = "finalizers" in meta
    return found


def _remove_all_but(before: dict[str, bool], api: Api) -> None:
    deadline = time.monotonic() + 30
    while extra := {path: held for path, held in _everything(api).items() if path not in before}:
        if time.monotonic() > deadline:
            pytest.fail(f"left behind after the test: {', '.join(extra)}")
        for path, held in extra.items():
            api.request("DELETE", path)
            # The finalizers of a CRD and of a namespace are Kubernetes' own, and it removes them.
            if held and not path.startswith(_KINDS[-2:]):
                patch = {"metadata": {"finalizers": None}}
                api.request("PATCH", path, patch, content_type="application/merge-patch+json")
