"""Where the files of deploy/ are: beside the packages in a checkout, inside this one when installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

NAMESPACE: Final = "modelplane-serving-stack"
"""Where everything of ours is installed."""
BROKER: Final = "serving-stack"


def deploy_directory() -> Path:
    """The folder that holds `knative/` and `local/`."""
    installed = Path(__file__).parent / "deploy"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "deploy"
