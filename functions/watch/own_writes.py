"""Tells our own writing of an InferenceCluster's status from everybody else's, by what its metadata says.

Each condition that turns comes back as an update of the InferenceCluster, which would cost as much again. Writes show
in `managedFields`: the entry of whoever writes gets the time of the write, that of whoever loses a field to others
keeps its own, and one that is left without fields goes.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import orjson

from functions.compose.sets import COMPOSITIONS
from functions.hub import FIELD_MANAGER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Entry = Mapping[str, Any]

MANAGERS: Final = (FIELD_MANAGER, *(each.manager for each in COMPOSITIONS))
"""The field managers of what we write into the status."""
_NO_ENTRY: Final = "-"


def content(metadata: Mapping[str, Any]) -> str:
    """All that the metadata says: a word for what is not ours, and one for the fields of each of our managers."""
    entries: Sequence[Entry] = metadata.get("managedFields") or ()
    others = [each for each in entries if not _is_ours(each)]
    rest = _digest({**metadata, "resourceVersion": "", "managedFields": others}, 32)
    return " ".join((rest, *(_fields_of(manager, entries) for manager in MANAGERS)))


def only_ours(before: str, after: str) -> bool:
    """Whether nothing happened from one content to the other but that we wrote the status."""
    rest, *fields = before.split(" ")
    rest_after, *fields_after = after.split(" ")
    return rest == rest_after and all(map(_is_a_write, fields, fields_after))


def _is_ours(entry: Entry) -> bool:
    return entry.get("manager") in MANAGERS and entry.get("subresource") == "status"


def _fields_of(manager: str, entries: Sequence[Entry]) -> str:
    """When a manager wrote last, and which fields it has."""
    own = [each for each in entries if _is_ours(each) and each["manager"] == manager]
    if not own:
        return _NO_ENTRY
    return f"{_digest([each.get('time') for each in own], 8)}.{_digest([each.get('fieldsV1') for each in own], 8)}"


def _is_a_write(before: str, after: str) -> bool:
    """Whether a manager's fields are as they were, or otherwise because it wrote."""
    moment, _, _ = before.partition(".")
    return before == after or (after != _NO_ENTRY and not after.startswith(f"{moment}."))


def _digest(value: Any, length: int) -> str:
    return hashlib.sha256(orjson.dumps(value)).hexdigest()[:length]
