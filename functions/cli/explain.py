"""`serving-stack explain`: how each composed object of an InferenceCluster stands, and what it waits for."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from functions.access.errors import AccessError, KubeconfigInvalid, NotFound
from functions.access.names import is_object_name
from functions.catalog import Stack
from functions.cli.formats.lines import printable, write_document, write_text
from functions.cli.kubectl import as_kubectl, cluster_options, find_connection

if TYPE_CHECKING:
    from functions.access.connection import Connection
    from functions.cli.formats.explanation import ExplainReport
    from functions.clusters import InferenceCluster
    from functions.hub import Hub
    from functions.world import World

_NAMED: Final = 10

EPILOG: Final = """\
Exit codes, the same for every format:

\b
    0  everything is applied and ready, or nothing is left of a deletion
    1  something is on its way, in conflict, refused or blocked
    2  wrong use: an unknown flag or value, no such file or context, no such
       InferenceCluster, or one that is not Provided
    3  it cannot be told: no usable kubeconfig, no answer, no right to read
   70  a bug
   74  the output could not be written
  130  interrupted
"""


def _cluster(_: click.Context, __: click.Parameter, name: str) -> str:
    if not is_object_name(name):
        raise click.BadParameter(f"no InferenceCluster can be called {printable(name)!r}")
    return name


@click.command(epilog=EPILOG)
@click.argument("cluster", callback=_cluster)
@cluster_options
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
def explain(*, cluster: str, kubeconfig: str | None, context: str | None, output: str) -> int:
    """Say what each composed object of an InferenceCluster waits for.

    Reads the InferenceCluster from the hub, the cluster that kubectl would talk to, and its target with the kubeconfig
    in its Secret, as the functions do. For every object it says whether it is applied, what comes next, and the one
    requirement or object that it waits for; of a deletion, what blocks it.

    It changes nothing. On the hub it needs the rights to get the InferenceCluster and its Secret in modelplane-system,
    and to list InferenceGateways.
    """
    kubectl = as_kubectl(kubeconfig, context)
    try:
        connection = find_connection(kubeconfig, context)
    except KubeconfigInvalid as trouble:
        report = _unread(cluster, trouble, kubectl=kubectl, context=printable(context or ""))
    else:
        report = asyncio.run(_look(connection, cluster, kubectl))
    _write(report, output)
    return report.exit_code


def _unread(cluster: str, trouble: AccessError, **known: Any) -> ExplainReport:
    """What is said where the InferenceCluster itself could not be read."""
    from functions.cli.formats.explanation import ExplainReport, Trouble  # noqa: PLC0415

    said = Trouble(reason=trouble.reason, detail=printable(str(trouble)))
    return ExplainReport(cluster=cluster, now=datetime.now(UTC), trouble=said, **known)


async def _look(connection: Connection, name: str, kubectl: str) -> ExplainReport:
    from functions.access.client import Client  # noqa: PLC0415 - `explain --help` needs none of this, here and below
    from functions.access.targets import Targets  # noqa: PLC0415
    from functions.hub import Hub  # noqa: PLC0415
    from functions.world import World  # noqa: PLC0415

    client = Client(connection)
    world = World(Hub(client), Targets(client))
    known: dict[str, Any] = {
        "kubectl": kubectl,
        "context": printable(connection.context),
        "server": printable(client.server),
    }
    try:
        cluster = await _read(world.hub, name)
        return await _explain(world, cluster, known)
    except AccessError as trouble:
        return _unread(name, trouble, **known)
    finally:
        await world.close()


async def _read(hub: Hub, name: str) -> InferenceCluster:
    """The InferenceCluster.

    Raises:
        AccessError: It could not be read, or says what nobody knows here.
        BadParameter: There is none of that name, or it is none of ours.
    """
    cluster = await hub.cluster(name)
    if cluster is None:
        raise click.BadParameter(f"the hub has no InferenceCluster {name}{await _others(hub)}", param_hint="CLUSTER")
    if not cluster.concerns_us:
        raise click.BadParameter(
            f"InferenceCluster {name} is not Provided, so that nothing is composed for it from here: that is for those "
            "with spec.cluster.source Existing and spec.cluster.existing.components Provided",
            param_hint="CLUSTER",
        )
    if cluster.stack is None and cluster.deletion_timestamp is None:
        raise AccessError(f"spec.stack of {name} is none of those known here: {', '.join(Stack)}")
    return cluster


async def _others(hub: Hub) -> str:
    """Which InferenceClusters there are instead, as far as that is to be seen.

    Raises:
        AccessError: It is no hub at all.
    """
    from functions.clusters import API_VERSION  # noqa: PLC0415
    from functions.hub import CLUSTERS  # noqa: PLC0415

    try:
        page = await hub.client.list_metadata(CLUSTERS, params={"limit": str(_NAMED)})
    except NotFound:
        raise AccessError(
            f"{hub.client.server} does not serve InferenceClusters ({API_VERSION}): it is no hub, or Modelplane's CRDs "
            "are not installed there; --context names another cluster"
        ) from None
    except AccessError:
        return ""
    names = ", ".join(each["metadata"]["name"] for each in page["items"] or ())
    more = " and more" if page["metadata"].get("continue") else ""
    return f"; it has: {names}{more}" if names else "; it has none at all"


async def _explain(world: World, cluster: InferenceCluster, known: dict[str, Any]) -> ExplainReport:
    from functions.cli.formats.explanation import ExplainReport, cleaned  # noqa: PLC0415
    from functions.compose.explain import explain as explain_objects  # noqa: PLC0415

    explanation = await explain_objects(world, cluster)
    return ExplainReport(
        cluster=cluster.name,
        now=world.clock.now(),
        stack=str(cluster.stack or ""),
        target=printable(explanation.target),
        secret=printable(str(cluster.kubeconfig or "")),
        deleting_since=cluster.deletion_timestamp or "",
        finalizers=tuple(printable(each) for each in cluster.finalizers),
        sets=cleaned(explanation.sets),
        **known,
    )


def _write(report: ExplainReport, output: str) -> None:
    """Prints the report on stdout."""
    if output == "json":
        from functions.cli.formats.explanation_data import as_json  # noqa: PLC0415

        write_document(as_json(report))
    else:
        from functions.cli.formats.explanation_text import as_text  # noqa: PLC0415
        from functions.cli.formats.terminal import Terminal  # noqa: PLC0415

        write_text(as_text(report, Terminal.of(sys.stdout)))
