"""The forms that a report of `serving-stack check` is printed in; each is imported only when it is asked for.

A renderer is a function from a report to a document; it decides nothing. Exit code and outcome are the report's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from functions.cli.formats.report import Report

DOCUMENTS: Final = {
    "json": "data:as_json",
    "yaml": "data:as_yaml",
    "junit": "junit:as_junit",
    "sarif": "sarif:as_sarif",
    "github": "github:as_github",
}
"""Where the renderer of each form is, beside text, which has to know the terminal."""


def document(report: Report, output: str) -> str:
    """The report in one of `DOCUMENTS`, whole, with a line break at its end."""
    module, _, function = DOCUMENTS[output].partition(":")
    rendered: str = getattr(import_module(f"{__name__}.{module}"), function)(report)
    return rendered
