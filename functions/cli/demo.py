"""`serving-stack demo`: the main job, shown on an API server of its own that ends with it."""

from __future__ import annotations

import click


@click.command()
def demo() -> int:
    """Show a cluster's requirements turning, on a real Kubernetes API server that ends with the demonstration.

    The substrate is installed component by component and a part of it removed again; each time the condition on the
    InferenceCluster follows. The first run builds the API server, which takes minutes; after that it is a few seconds.
    """
    from functions.demo.run import run  # noqa: PLC0415 - `demo --help` needs none of this
    from functions.local.errors import LocalError  # noqa: PLC0415

    try:
        return run()
    except LocalError as error:
        raise click.ClickException(str(error)) from error
