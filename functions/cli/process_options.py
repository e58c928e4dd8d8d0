"""The options of what runs as a process beside a hub: each can come from the environment, as Knative sets it."""

from __future__ import annotations

import click

hub_kubeconfig = click.option(
    "--kubeconfig",
    envvar="SERVING_STACK_KUBECONFIG",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Of the hub; by default what kubectl would use, in a pod its ServiceAccount.",
)
log_level = click.option(
    "--log-level",
    envvar="SERVING_STACK_LOG_LEVEL",
    show_envvar=True,
    default="info",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    show_default=True,
    help="Least level that is logged.",
)
