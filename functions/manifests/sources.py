"""What the ApiServerSources of `deploy/knative` take: each has a ServiceAccount that may watch what it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from functions.rights import Right
from functions.watch.object_events import guessed_plural

if TYPE_CHECKING:
    from collections.abc import Iterator

KIND: Final = "ApiServerSource"
_NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


def source_accounts(text: str) -> dict[str, tuple[Right, ...]]:
    """The rights of each source's ServiceAccount, by its name.

    Args:
        text: The sources as YAML; documents of other kinds are passed over.
    """
    specs = (each["spec"] for each in yaml.safe_load_all(text) if each["kind"] == KIND)
    return {each["serviceAccountName"]: tuple(_rights(each)) for each in specs}


def _rights(spec: dict[str, Any]) -> Iterator[Right]:
    labels = (spec.get("namespaceSelector") or {}).get("matchLabels") or {}
    for each in spec["resources"]:
        group = each["apiVersion"].rpartition("/")[0]
        verbs = ("get", "list", "watch")  # Knative's controller asks for all three before it starts the source
        yield Right(group, guessed_plural(each["kind"]), verbs, namespace=labels.get(_NAMESPACE_LABEL, ""))
