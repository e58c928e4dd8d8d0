"""`serving-stack`: the command line; each command is imported only when it is run, so that none pays for another."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMANDS: Final = {
    "check": "functions.cli.check:check",
    "demo": "functions.cli.demo:demo",
    "dev": "functions.cli.dev:dev",
    "emit": "functions.cli.emit:emit",
    "explain": "functions.cli.explain:explain",
    "generate": "functions.cli.generate:generate",
    "local": "functions.cli.local:local",
    "render": "functions.cli.render:render",
    "replay": "functions.cli.replay:replay",
    "requirements": "functions.cli.requirements:requirements",
    "serve": "functions.cli.serve:serve",
    "watch": "functions.cli.watch:watch",
}
BUG: Final = 70
UNWRITTEN: Final = 74
INTERRUPTED: Final = 130
UNREAD: Final = 141
"""Exit codes that are the same for every command; 2 is a wrong use of it.

`UNWRITTEN` is EX_IOERR of sysexits.h: the output could not be written, as on a full disk. `UNREAD` is what a shell says
of a program that SIGPIPE ended: nobody reads the output any more, which needs no words.
"""

# Of a write to a stream: an error about a file or an address has its name as well.
_OF_WRITING: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class _Unwritten(click.ClickException):
    """The output cannot be written."""

    exit_code = UNWRITTEN


class _Unread(click.ClickException):
    """Nobody reads the output any more."""

    exit_code = UNREAD

    def show(self, file: IO[Any] | None = None) -> None:
        """Say nothing, as others do."""


class LazyGroup(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, imported; None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{COMMANDS[cmd_name]} is no click command"  # noqa: S101
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the arguments; the help is written here."""
        with _writing():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _writing():
            code = super().invoke(ctx)
            sys.stdout.flush()
        return code


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Tell an output that cannot be written from a bug; click itself would exit with 1, or not know it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_WRITING or error.filename is not None:
            raise
        if error.errno == errno.EPIPE:
            raise _Unread("") from None
        raise _Unwritten(f"the output cannot be written: {error.strerror}") from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="modelplane-serving-stack")
def cli() -> None:
    """Say what a Kubernetes cluster still lacks to run Modelplane's serving stack, the moment it changes."""


def main() -> None:
    """Run the command line; ends the process with the command's exit code.

    A command returns its exit code, or None for 0. Whatever no one expected ends with 70, because 1 means
    something else to `check`.
    """
    _open_missing_streams()
    _end_when_told()
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        code = error.exit_code
        with contextlib.suppress(OSError):
            error.show()
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception:  # noqa: BLE001 - the last resort
        code = BUG
        with contextlib.suppress(OSError):
            _tell_bug()
    _abandon_unwritable_streams()
    sys.exit(code if isinstance(code, int) else 0)


def _end_when_told() -> None:
    """In a container, where the kernel lets the first process ignore SIGTERM until somebody says what to do on it."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _open_missing_streams() -> None:
    """Give a process that was started with closed streams those that print nowhere, before a file takes their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - open until the end


def _abandon_unwritable_streams() -> None:
    """Have what could not be written go nowhere: Python would try again at its end, and exit with a code of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell_bug() -> None:
    import traceback  # noqa: PLC0415 - not needed on a good day

    traceback.print_exc()
    click.echo("This is a bug of serving-stack; please report it with the lines above.", err=True)
