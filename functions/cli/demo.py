"""`serving-stack demo`: the main job, shown on an API server of its own that ends with it."""

from __future__ import annotations

import click


@click.command()
def demo() -> int:
    """Show conditions and objects following what is installed, on a real API server that ends with it.

    The substrate is installed component by component, and a part of it removed again; each time the condition on the
    InferenceCluster follows, and Modelplane's own objects are applied as their APIs come. A client CA lets the Gateway
    be; a listener that somebody adds to it is taken out again; at last the InferenceCluster is deleted, and its objects
    go in order. Stand-ins play the controllers. The first run builds the API server, which takes minutes; after that it
    is a quarter of a minute. The exit code is 1 where something does not follow in time.
    """
    from functions.demo.run import run  # noqa: PLC0415 - `demo --help` needs none of this
    from functions.local.errors import LocalError  # noqa: PLC0415

    try:
        return run()
    except LocalError as error:
        raise click.ClickException(str(error)) from error
