"""`serving-stack`: the command line; each command is imported only when it is run, so that none pays for another."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

import click

COMMANDS: Final = {
    "check": "functions.cli.check:check",
    "demo": "functions.cli.demo:demo",
    "dev": "functions.cli.dev:dev",
    "generate": "functions.cli.generate:generate",
    "local": "functions.cli.local:local",
    "requirements": "functions.cli.requirements:requirements",
    "serve": "functions.cli.serve:serve",
}
BUG: Final = 70
INTERRUPTED: Final = 130
UNREAD: Final = 141
"""Exit codes that are the same for every command; 2 is a wrong use of it."""


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

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a standard output that nobody reads ends it quietly, where click would exit with 1."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # as `| head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return UNREAD
        return code


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="modelplane-serving-stack")
def cli() -> None:
    """Say what a Kubernetes cluster still lacks to run Modelplane's serving stack, the moment it changes."""


def main() -> None:
    """Run the command line; ends the process with the command's exit code.

    A command returns its exit code, or None for 0. Whatever no one expected ends with 70, because 1 means
    something else to `check`.
    """
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception:  # noqa: BLE001 - the last resort
        code = _bug()
    sys.exit(code if isinstance(code, int) else 0)


def _bug() -> int:
    import traceback  # noqa: PLC0415 - not needed on a good day

    traceback.print_exc()
    click.echo("This is a bug of serving-stack; please report it with the lines above.", err=True)
    return BUG
