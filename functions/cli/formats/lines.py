"""Lines of text that are fit to print, and fit where they are printed."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from functions.cli.formats.terminal import Terminal

_CONTINUED: Final = " \\"


def printable(text: str) -> str:
    """One line in which nothing that a server or a kubeconfig says can steer a terminal, or spoil a document."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def wrapped(start: str, text: str, terminal: Terminal) -> list[str]:
    """Lines that fit, URLs and paths unbroken; those after the first are indented as `start` is wide."""
    return textwrap.wrap(
        text,
        terminal.width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def wrapped_command(indent: str, command: str, terminal: Terminal) -> list[str]:
    """Lines that fit and that a shell reads as one."""
    *others, last = textwrap.wrap(
        command,
        terminal.width - len(_CONTINUED),
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*(f"{each}{_CONTINUED}" for each in others), last]


def write_text(text: str) -> None:
    """Prints text for people on stdout, in what stdout is for."""
    click.echo(text.encode(sys.stdout.encoding or "ascii", "replace"), nl=False)


def write_document(text: str) -> None:
    """Prints a document for programs on stdout, in UTF-8."""
    click.echo(text.encode(), nl=False)
