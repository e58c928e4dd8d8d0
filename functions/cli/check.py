"""`serving-stack check`: what the cluster that a person's kubeconfig points at still lacks; it only reads."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from functions.access.errors import AccessError, KubeconfigInvalid
from functions.catalog import DeviceClass, Stack, of_stack
from functions.cli.formats import DOCUMENTS, document
from functions.cli.formats.lines import printable, write_document, write_text
from functions.cli.formats.progress import Silence, progress
from functions.cli.formats.report import Report, cleaned
from functions.cli.formats.terminal import Terminal
from functions.cli.formats.text import as_text
from functions.cli.kubectl import as_kubectl, cluster_options, find_connection
from functions.cli.main import INTERRUPTED
from functions.conditions import checked_components
from functions.judge import Outcome, judge, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from functions.access.client import Client
    from functions.access.connection import Connection
    from functions.access.discovery import Discovery
    from functions.judge import Verdict

POLL: Final = 1.0
"""Seconds between two looks while waiting."""
LONGEST_POLL: Final = 10.0
"""Seconds between two looks at a cluster that does not answer."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")

EPILOG: Final = """\
Exit codes, the same for every format:

\b
    0  everything is met
    1  something is missing, whatever else could not be told
    2  wrong use: an unknown flag or value, no such file or context
    3  it cannot be told: no usable kubeconfig, no answer, no right to read
    4  kept for warnings
   70  a bug
   74  the output could not be written
  130  interrupted; what was seen last is printed
"""


class Duration(click.ParamType[float]):
    """A duration as Go and kubectl write it, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds of such as `90s`, `10m` or `1h30m`."""
        if not _WHOLE.fullmatch(value):
            self.fail(f"{value!r} is no duration; write such as 90s, 10m or 1h30m", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))


@click.command(epilog=EPILOG)
@cluster_options
@click.option(
    "--stack",
    type=click.Choice([str(each) for each in Stack], case_sensitive=False),
    default=str(Stack.STANDARD),
    metavar=f"[{'|'.join(Stack)}]",
    show_default=True,
    help="Whose requirements to check.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", *DOCUMENTS]),
    default="text",
    show_default=True,
    help="What to print on stdout.",
)
@click.option(
    "--wait",
    type=Duration(),
    default="0s",
    metavar="DURATION",
    help="Wait so long at most, such as 90s, 10m or 1h30m, until all is met; what turns is shown on stderr.",
)
@click.option("--quiet", is_flag=True, help="Show no progress, and as text only what is not met.")
def check(*, kubeconfig: str | None, context: str | None, stack: str, output: str, wait: float, quiet: bool) -> int:
    """Say what a cluster lacks to run the serving stack.

    Reads the cluster that your kubeconfig points at, as kubectl does, and changes nothing. It needs no installation
    there, and the rights to get customresourcedefinitions and deviceclasses.
    """
    options = _Options(Stack(stack), as_kubectl(kubeconfig, context), wait=wait, quiet=quiet)
    interrupted = False
    try:
        connection = find_connection(kubeconfig, context)
    except KubeconfigInvalid as trouble:
        report = options.report(context or "", "", unknown(checked_components(options.stack), trouble).verdicts)
    else:
        report, interrupted = _observe(connection, options)
    _write(report, output, quiet=quiet)
    return INTERRUPTED if interrupted else report.exit_code


class _Options(NamedTuple):
    """What was asked for, as far as it is not for the connection."""

    stack: Stack
    kubectl: str
    wait: float
    quiet: bool

    def report(self, context: str, server: str, verdicts: Iterable[Verdict], version: str = "") -> Report:
        """A report in which every text is fit to print."""
        return Report(
            context=printable(context),
            server=printable(server),
            kubernetes_version=printable(version),
            stack=self.stack,
            verdicts=cleaned(verdicts),
            not_checked=sum(len(each.not_checked) for each in of_stack(self.stack)),
            kubectl=self.kubectl,
        )


def _observe(connection: Connection, options: _Options) -> tuple[Report, bool]:
    """The last look at the cluster, and whether it was the last because the person had enough of waiting."""
    quiet = options.quiet or not options.wait
    shown = Silence() if quiet else progress(sys.stderr, Terminal.of(sys.stderr))
    seen: list[Report] = []

    def show(report: Report, left: float) -> None:
        seen.append(report)
        shown.show(report, left)

    interrupted = False
    try:
        asyncio.run(_wait_until_met(connection, options, show))
    except KeyboardInterrupt:
        if not seen:
            raise
        interrupted = True
    finally:
        shown.end()
    return seen[-1], interrupted


async def _wait_until_met(connection: Connection, options: _Options, show: Callable[[Report, float], None]) -> None:
    """Looks until all is met or the time is over, at least once; `show` is given each look and the seconds left."""
    from functions.access.client import Client  # noqa: PLC0415 - `check --help` needs none of this, here and below

    deadline = time.monotonic() + options.wait
    client = Client(connection)
    try:
        cluster = _Cluster(client, options)
        report, pause = await cluster.look(), POLL
        while report.exit_code and (left := deadline - time.monotonic()) > 0:
            show(report, left)
            await asyncio.sleep(min(pause, left))
            last = time.monotonic() >= deadline
            report = await (cluster.look() if last else cluster.look_again(report))
            pause = min(2 * pause, LONGEST_POLL) if report.trouble else POLL
        show(report, 0)
    finally:
        await client.close()


class _Cluster:
    """One cluster, looked at again and again."""

    def __init__(self, client: Client, options: _Options) -> None:
        from functions.access.discovery import DiscoveryReader  # noqa: PLC0415
        from functions.access.targets import Target  # noqa: PLC0415

        self._target = Target(client, DiscoveryReader(client))
        self._options = options
        self._version = ""
        self._discovery: Discovery | None = None

    async def look(self) -> Report:
        """Judges everything."""
        judgement, _ = await asyncio.gather(
            judge(self._target, checked_components(self._options.stack)), self._read_version()
        )
        return self._report(judgement.verdicts)

    async def look_again(self, before: Report) -> Report:
        """Judges only what can have changed since the last look, so that waiting costs the server next to nothing.

        Where discovery is as it was, each CRD is served or not as it was; objects, and what could not be told, are
        looked at again.
        """
        if await self._discovery_changed(before):
            return await self.look()
        components = [each.component for each in before.verdicts if _may_have_changed(each)]
        judged = {each.component.key: each for each in (await judge(self._target, components)).verdicts}
        return self._report([judged.get(each.component.key, each) for each in before.verdicts])

    async def _discovery_changed(self, before: Report) -> bool:
        """Whether it says something else than at the former call, or does not answer."""
        last, self._discovery = self._discovery, None
        try:
            self._discovery = await self._target.discovery.read({each.requirement.group for each in before.findings})
        except AccessError:
            return True
        return self._discovery is not last

    async def _read_version(self) -> None:
        if not self._version:
            with contextlib.suppress(AccessError):  # the header can do without
                self._version = str((await self._target.client.get("/version")).get("gitVersion", ""))

    def _report(self, verdicts: Iterable[Verdict]) -> Report:
        client = self._target.client
        return self._options.report(client.connection.context, client.server, verdicts, self._version)


def _may_have_changed(verdict: Verdict) -> bool:
    """Whether there is more to it than discovery."""
    return any(
        each.outcome is Outcome.UNKNOWN or isinstance(each.requirement, DeviceClass) for each in verdict.findings
    )


def _write(report: Report, output: str, *, quiet: bool) -> None:
    """Prints the report on stdout."""
    if output == "text":
        write_text(as_text(report, Terminal.of(sys.stdout), quiet=quiet))
    else:
        write_document(document(report, output))
