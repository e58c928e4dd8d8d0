"""What a process that starts for an event does not wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVE = "import functions.cli.serve, functions.registry, functions.host.run, functions.world, events.publisher"
CHECK = "import functions.cli.main, functions.cli.check, functions.access.kubeconfig, functions.access.client"


@pytest.mark.parametrize(
    ("statement", "needless"),
    [
        pytest.param(
            SERVE,
            ["pydantic", "yaml", "structlog", "rich", "prometheus_client", "cryptography", "kubernetes_asyncio"],
            id="serve",
        ),
        pytest.param(
            CHECK,
            ["pydantic", "structlog", "rich", "prometheus_client", "cryptography", "kubernetes_asyncio", "uvloop"],
            id="check",
        ),
    ],
)
def test_heavy_packages_are_imported_when_used(statement: str, needless: list[str]) -> None:
    script = f"{statement}\nimport sys\nprint(*sorted(set({needless}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
