"""The two CRDs that the ModelExpress server keeps its state in."""

from __future__ import annotations

from typing import Any, Final

GROUP: Final = "modelexpress.nvidia.com"

_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer"}
_LONG: Final = {"type": "integer", "format": "int64"}
_MOMENT: Final = {"type": "string", "format": "date-time"}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _one_of(*values: str, **more: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values), **more}


def _column(name: str, path: str, type_: str = "string") -> dict[str, Any]:
    return {"name": name, "type": type_, "jsonPath": path}


def _crd(
    kind: str, plural: str, short: list[str], properties: dict[str, Any], columns: list[dict[str, Any]]
) -> dict[str, Any]:
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(), "shortNames": short}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": _object(properties)},
        "additionalPrinterColumns": [*columns, _column("Age", ".metadata.creationTimestamp", "date")],
    }
    labels = {"app.kubernetes.io/name": "modelexpress", "app.kubernetes.io/component": "crd"}
    return {
        "metadata": {"name": f"{plural}.{GROUP}", "labels": labels},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


_ARTIFACT: Final = _object(
    {"artifactId": _TEXT, "totalSize": _LONG, "fileCount": _WHOLE, "chunkCount": _WHOLE, "nodeRank": _WHOLE}
)
_WORKER: Final = _object(
    {
        "workerRank": _WHOLE,
        "backendType": _one_of("nixl", "transfer_engine", "none"),
        "nixlMetadata": _TEXT,
        "transferEngineSessionId": _TEXT,
        "tensorCount": _WHOLE,
        "tensorConfigMap": _TEXT,
        "metadataEndpoint": _TEXT,
        "agentName": _TEXT,
        "workerGrpcEndpoint": _TEXT,
        "accelerator": _TEXT,
        "artifactSource": _ARTIFACT,
        "status": _one_of("Unknown", "Initializing", "Ready", "Stale", default="Unknown"),
        "updatedAt": _MOMENT,
    },
    "workerRank",
)
_CONDITION: Final = _object(
    {
        "type": _one_of("Ready"),
        "status": _one_of("True", "False", "Unknown"),
        "reason": _TEXT,
        "message": _TEXT,
        "lastTransitionTime": _MOMENT,
    },
    "type",
    "status",
)

MODEL_METADATAS: Final = _crd(
    "ModelMetadata",
    "modelmetadatas",
    ["mxmeta", "mm"],
    {
        "spec": _object({"modelName": _TEXT, "sourceType": _TEXT}, "modelName"),
        "status": _object(
            {
                "worker": _WORKER,
                "conditions": {"type": "array", "items": _CONDITION},
                "observedGeneration": _LONG,
                "publishedAt": _MOMENT,
            }
        ),
    },
    [_column("Model", ".spec.modelName"), _column("Type", ".spec.sourceType")],
)
MODEL_CACHE_ENTRIES: Final = _crd(
    "ModelCacheEntry",
    "modelcacheentries",
    ["mxcache"],
    {
        "spec": _object({"modelName": _TEXT, "provider": _one_of("HuggingFace", "Ngc")}, "modelName", "provider"),
        "status": _object(
            {
                "phase": _one_of("", "Downloading", "Downloaded", "Error"),
                "createdAt": _TEXT,
                "lastUsedAt": _TEXT,
                "message": _TEXT,
            }
        ),
    },
    [
        _column("Model", ".spec.modelName"),
        _column("Phase", ".status.phase"),
        _column("LastUsed", ".status.lastUsedAt"),
    ],
)
