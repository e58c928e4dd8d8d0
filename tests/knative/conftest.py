"""Fixtures for what runs on real Knative: all of it, once for all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from functions.local.knative.instance import KnativeControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from functions.local.binaries import Binaries


@pytest.fixture(scope="session")
def knative(binaries: Binaries) -> Iterator[KnativeControlPlane]:
    """A control plane with Knative Eventing, that all tests of the session share; each has a namespace of its own."""
    with KnativeControlPlane(binaries) as shared:
        yield shared
