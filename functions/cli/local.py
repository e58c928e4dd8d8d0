"""`serving-stack local`: a Kubernetes API server on this machine, without containers."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from functions.catalog import COMPONENTS
from functions.local.api import Api
from functions.local.binaries import find_binaries
from functions.local.cache import state_directory
from functions.local.directory import KEEPER, InstanceDirectory
from functions.local.errors import LocalError
from functions.local.processes import exit_on_signals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from functions.access.client import Client

_PATIENCE: Final = 60.0
"""Seconds that the API server may take for a definition: a megabyte of schema keeps a busy machine for many."""

_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: state_directory() / "local",
    help="Where the control plane lives, one in each directory; `local --help` tells the default.",
)
_components = click.argument(
    "components",
    nargs=-1,
    required=True,
    metavar="COMPONENT...",
    type=click.Choice([component.key for component in COMPONENTS]),
)


@click.group()
def local() -> None:
    """Run a real Kubernetes API server on this machine, without containers.

    It is etcd, kube-apiserver and kube-controller-manager. They come from KUBEBUILDER_ASSETS where that is set, else
    they are built from Go modules once, which takes minutes, and kept in ~/.cache.

    With --knative the programs of Knative Eventing run beside it, in network namespaces of their own: Brokers,
    Triggers, sources and Knative Services work as in a cluster.

    Any number run side by side, each in a directory of its own. The default is

    \b
        ~/.local/state/modelplane-serving-stack/local
    """  # noqa: D301 - it is click's mark for a paragraph that is not wrapped


@local.command()
@click.option("--knative", is_flag=True, help="Those of Knative and kubectl too.")
def build(*, knative: bool) -> None:
    """Build the programs of the control plane, unless they are there."""
    with _explained():
        click.echo(find_binaries().etcd.parent)
        if knative:
            from functions.local.binaries import find_kubectl  # noqa: PLC0415 - the other commands do without
            from functions.local.knative.manifests import manifests_directory  # noqa: PLC0415
            from functions.local.knative.programs import find_programs  # noqa: PLC0415

            click.echo(find_kubectl())
            click.echo(find_programs()["controller"].parent)
            click.echo(manifests_directory())


@local.command()
@_directory
@click.option("--audit-log", is_flag=True, help="Log each request to control-plane/audit.log in the directory.")
@click.option("--knative", is_flag=True, help="With Knative Eventing, and a stand-in for Serving; only on Linux.")
def up(directory: Path, *, audit_log: bool, knative: bool) -> None:
    """Start a control plane, and return once it is ready.

    It runs until `down`. Its kubeconfig is the file `kubeconfig` in the directory. With Knative, pods reach the API
    server by control-plane/knative/kubeconfig, and what they write is in *.log beside that.
    """
    with _explained():
        place = InstanceDirectory(directory)
        status = place.status()
        if status.up:
            if knative and KEEPER not in status.running:
                raise LocalError(f"the control plane in {place.root} runs without Knative; end it with `down` first")
            click.echo(f"Already running at {Api.of(place.kubeconfig).server}")
        else:
            seconds = _start(directory, audit=audit_log, knative=knative)
            click.echo(f"Ready at {Api.of(place.kubeconfig).server} after {seconds:.1f} s")
        click.echo(f"export KUBECONFIG={place.kubeconfig}")


def _start(directory: Path, *, audit: bool, knative: bool) -> float:
    """Start a control plane that outlives this process; gives the seconds that it took, without what was built."""
    if knative:
        from functions.local.knative.instance import KnativeControlPlane  # noqa: PLC0415 - it takes time to import
        from functions.local.knative.network import require_networks  # noqa: PLC0415
        from functions.local.knative.programs import find_programs  # noqa: PLC0415

        require_networks()
        binaries = find_binaries()
        find_programs()
        start = KnativeControlPlane(binaries, directory, audit=audit, detached=True).start
    else:
        binaries = find_binaries()
        from functions.local.instance import ControlPlane  # noqa: PLC0415 - cryptography takes time to import

        start = ControlPlane(binaries, directory, audit=audit, detached=True).start
    began = time.monotonic()
    exit_on_signals()  # so that what was started so far is ended
    start()
    return time.monotonic() - began


@local.command()
@_directory
def down(directory: Path) -> None:
    """End a control plane and remove what it kept."""
    with _explained():
        place = InstanceDirectory(directory)
        existed = place.status().exists
        place.end()
        click.echo(f"{'Ended the control plane' if existed else 'There is no control plane'} in {place.root}")


@local.command()
@_directory
def status(directory: Path) -> int:
    """Tell whether a control plane runs.

    The exit code is 1 when there is none, when a server of it does not run, and when it is not ready.
    """
    with _explained():
        place = InstanceDirectory(directory)
        found = place.status()
        if not found.exists:
            click.echo(f"There is no control plane in {place.root}")
            return 1
        lines = {**found.running, **found.programs}
        width = max(map(len, (*lines, "https://127.0.0.1:65535")))
        for name, runs in lines.items():
            click.echo(f"{name:<{width}}  {'running' if runs else 'not running'}")
        if not place.kubeconfig.exists():
            click.echo("It is being started." if found.starting else "Its start was broken off; end it with `down`.")
            return 1
        api = Api.of(place.kubeconfig)
        ready = api.ready()
        click.echo(f"{api.server:<{width}}  {'ready' if ready else 'not ready'}")
        click.echo(f"export KUBECONFIG={place.kubeconfig}")
        return 0 if found.up and ready else 1


@local.group()
def substrate() -> None:
    """Install or remove the APIs of components.

    These are the real CRDs of a component, without its controllers.
    """


@substrate.command()
@_directory
@_components
def add(directory: Path, components: Sequence[str]) -> None:
    """Install the CRDs of components, or their DeviceClass.

    They are downloaded as Go modules the first time. For Grove and KAI Scheduler, which have none, there are small
    stand-ins.
    """
    from functions.local import substrate as installer  # noqa: PLC0415 - so that its name is free here, and for the start

    _for_each(directory, components, installer.add, "installed")


@substrate.command()
@_directory
@_components
def remove(directory: Path, components: Sequence[str]) -> None:
    """Delete what `add` installs, with all objects of those kinds."""
    from functions.local import substrate as installer  # noqa: PLC0415

    _for_each(directory, components, installer.remove, "removed")


def _for_each(
    directory: Path, components: Sequence[str], change: Callable[[Client, str], Awaitable[Sequence[str]]], done: str
) -> None:
    from functions.access.client import Client  # noqa: PLC0415 - aiohttp takes time to import
    from functions.access.errors import AccessError  # noqa: PLC0415
    from functions.access.kubeconfig import load_file  # noqa: PLC0415

    place = InstanceDirectory(directory)

    async def change_all() -> None:
        client = Client(load_file(place.kubeconfig), timeout=_PATIENCE)
        try:
            for component in components:
                paths = await change(client, component)
                click.echo(f"{component}: {_summary(paths, done)}")
        finally:
            await client.close()

    with _explained():
        if not place.status().up:
            raise LocalError(f"no control plane runs in {place.root}; start one with `serving-stack local up`")
        try:
            asyncio.run(change_all())
        except AccessError as error:
            raise LocalError(str(error)) from error


def _summary(paths: Sequence[str], done: str) -> str:
    if not paths:
        return f"nothing was {done}"
    return ", ".join(path.rpartition("/")[2] for path in paths) + f" {done}"


@contextmanager
def _explained() -> Iterator[None]:
    """Turn the errors of this package into a message and exit code 1."""
    try:
        yield
    except LocalError as error:
        raise click.ClickException(str(error)) from error
