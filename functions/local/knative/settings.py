"""What the keeper is told by who starts it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

INSIDE: Final = PurePath("knative", "kubeconfig")
"""The admin's kubeconfig for use by pods, below the home of the control plane."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the keeper is told.

    Attributes:
        directory: Where the control plane lives.
        listener: The descriptor of a socket that listens outside, for the API server.
        port: Its port, which is the API server's inside as well.
        audit: Log each request.
        binaries: etcd, kube-apiserver and kube-controller-manager.
        programs: Those of Knative, by their package below cmd/.
        manifests: The directory with those of Knative.
    """

    directory: str
    listener: int
    port: int
    audit: bool
    binaries: tuple[str, ...]
    programs: dict[str, str]
    manifests: str

    def dump(self) -> str:
        """As the argument of the process."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def load(cls, argument: str) -> Settings:
        """From the argument of the process."""
        return cls(**json.loads(argument))
