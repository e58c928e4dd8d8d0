"""`serving-stack demo`: the main job, shown on an API server of its own that ends with it."""

from __future__ import annotations

import click


@click.command()
def demo() -> int:
    """Show a cluster's requirements turning, on a real Kubernetes API server that ends with the demonstration.

    The substrate is installed component by component and a part of it removed again; each time the condition on the
    InferenceCluster follows. The first run builds the API server, which takes minutes; after that it is a few seconds.
    """
    import uvloop  # noqa: PLC0415 - `demo --help` needs none of this

    from functions.demo.story import tell  # noqa: PLC0415
    from functions.host import log  # noqa: PLC0415
    from functions.local.binaries import find_binaries  # noqa: PLC0415
    from functions.local.errors import LocalError  # noqa: PLC0415
    from functions.local.instance import ControlPlane  # noqa: PLC0415

    log.configure("error")
    try:
        control_plane = ControlPlane(find_binaries())
        _download()
        with control_plane:
            return uvloop.run(tell(control_plane))
    except LocalError as error:
        raise click.ClickException(str(error)) from error


def _download() -> None:
    """Fetches the CRDs beforehand, so that no network stands between an installation and its condition."""
    from functions.catalog import Stack, of_stack  # noqa: PLC0415
    from functions.local.substrate import manifests  # noqa: PLC0415

    for component in of_stack(Stack.STANDARD):
        manifests(component.key)
