"""What the image is built from is what everything is tested with."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement

from tests.image.conftest import ROOT
from tests.image.locks import pins


def test_the_image_gets_the_very_files_that_are_tested() -> None:
    everything, runtime = pins(ROOT / "requirements.lock"), pins(ROOT / "requirements-runtime.lock")
    assert {name: everything.get(name) for name in runtime} == runtime
    assert all(each.hashes for each in runtime.values())


def test_the_image_gets_what_is_needed_and_no_tools() -> None:
    required = [Requirement(each) for each in metadata.requires("modelplane-serving-stack") or ()]
    runtime = pins(ROOT / "requirements-runtime.lock")
    for each in required:
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            assert each.specifier.contains(runtime[each.name].version)
    assert {"pytest", "mypy", "ruff", "testcontainers"}.isdisjoint(runtime)
