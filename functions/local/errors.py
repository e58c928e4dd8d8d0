"""The one error of this package."""

from __future__ import annotations


class LocalError(Exception):
    """The embedded control plane cannot be had; the text says what is wrong, where, and what to do."""
