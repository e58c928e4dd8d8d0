"""Whether a live object is exactly what was applied: what differs in it, and what others put inside.

Fields that nobody owns are the API server's defaults; `metadata.managedFields` tells them from what others added.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from functions.compose.ownership import ADOPT, MANAGER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Path: TypeAlias = "tuple[str | int, ...]"

NESTED: Final = "what is nested in it deeper than anything of ours"
"""What is changed of an object that nobody looks through."""
_DEEPEST: Final = 150
OWNERSHIP: Final = "metadata.managedFields"
"""What is changed of an object where nobody can tell any more what is ours in it: somebody took that note away."""
_NOT_CONTENT: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


@dataclass(frozen=True, slots=True)
class Difference:
    """How a live object departs from what should be there.

    Attributes:
        changed: Where it lacks something of ours, or has it otherwise.
        added: What others put beside ours, and who.
    """

    changed: tuple[str, ...] = ()
    added: tuple[tuple[Path, str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added)

    def __str__(self) -> str:
        added = [f"{text} (of {manager})" for _, text, manager in self.added]
        return ", ".join([*added, *self.changed])

    def removal(self, resource_version: str) -> list[dict[str, Any]]:
        """The JSON patch that takes out what others added, if the object is still the same."""
        guard: list[dict[str, Any]] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}
        ]
        paths = sorted((path for path, _, _ in self.added), key=_position, reverse=True)
        return guard + [{"op": "remove", "path": _pointer(path)} for path in paths]


def compare(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> Difference:
    """How `live` departs from `wanted`, its status and what others keep in its metadata apart."""
    if _is_deeper(live, _DEEPEST):
        return Difference((NESTED,))
    entries = [each for each in live["metadata"].get("managedFields") or () if each.get("subresource") != "status"]
    ours = [_content(each.get("fieldsV1") or {}, "f:") for each in entries if each.get("manager") == MANAGER]
    added: dict[Path, tuple[str, str]] = {}
    changed: list[str] = []
    if not ours:
        changed.append(OWNERSHIP)
    for entry in entries:
        if entry.get("manager") == MANAGER:
            continue
        for path, text, whole in _foreign(_content(entry.get("fieldsV1") or {}, "f:"), ours, wanted, live):
            if whole:
                changed.append(text)
            else:
                added.setdefault(path, (text, entry.get("manager", "")))
    rest = copy.deepcopy(_content(live))
    for path in sorted(added, key=_position, reverse=True):
        _remove(rest, path)
    if ADOPT in (live["metadata"].get("annotations") or {}):  # it is good for one adoption, which has been
        added["metadata", "annotations", ADOPT] = f"metadata.annotations.{ADOPT}", "whoever put it there"
    changed += _changed(_content(wanted), rest, "")
    for field in ("labels", "annotations"):
        has = live["metadata"].get(field) or {}
        changed += _changed(wanted["metadata"].get(field) or {}, has, f"metadata.{field}")
    return Difference(tuple(dict.fromkeys(changed)), tuple((path, *said) for path, said in added.items()))


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether anything is nested deeper; without recursion, which is what too deep an object is too deep for."""
    layer = [value]
    for _ in range(levels):
        layer = [
            below
            for each in layer
            for below in (each.values() if isinstance(each, dict) else each)
            if isinstance(below, dict | list)
        ]
        if not layer:
            return False
    return True


def _content(found: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    return {key: value for key, value in found.items() if key.removeprefix(prefix) not in _NOT_CONTENT}


def _foreign(
    owned: Mapping[str, Any], ours: Sequence[Mapping[str, Any]], wanted: Any, live: Any, at: tuple[Path, str] = ((), "")
) -> Iterator[tuple[Path, str, bool]]:
    """The topmost places in `live` that somebody else has for himself.

    Each comes with whether `wanted` has it too, and another took it as a whole: a list or map that can only be owned in
    one piece shows nothing of what he put inside.
    """
    path, text = at
    for key, below in owned.items():
        if key == ".":
            continue
        found = _find(key, live)
        if found is None:  # it has been taken out since
            continue
        place, shown = found
        here = (*path, place)
        said = f"{text}{shown}" if shown.startswith("[") or not text else f"{text}.{shown}"
        twin = _find(key, wanted)
        mine = [each[key] for each in ours if key in each]
        if twin is None:
            yield here, said, False
        elif not mine and not below.keys() - {"."} and isinstance(live[place], dict | list):
            yield here, said, True
        else:
            yield from _foreign(below, mine, wanted[twin[0]], live[place], (here, said))


def _find(key: str, value: Any) -> tuple[str | int, str] | None:
    """Where a key of `fieldsV1` leads to in an object, and how that is written for people; None where nowhere."""
    kind, _, rest = key.partition(":")
    if kind == "f":
        return (rest, rest) if isinstance(value, dict) and rest in value else None
    if not isinstance(value, list):
        return None
    if kind == "i":
        return (int(rest), f"[{rest}]") if rest.isdecimal() and int(rest) < len(value) else None
    wanted = _parsed(rest)
    for index, item in enumerate(value):
        if kind == "v" and item == wanted:
            return index, f"[{wanted}]"
        if (
            kind == "k"
            and isinstance(item, dict)
            and isinstance(wanted, dict)
            and all(item.get(name) == each for name, each in wanted.items())
        ):
            return index, f"[{','.join(f'{name}={each}' for name, each in wanted.items())}]"
    return None


def _parsed(text: str) -> Any:
    """The value in a key of `fieldsV1`; one that equals nothing where it is none, for the API server keeps anything."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return object()


def _changed(wanted: Any, live: Any, text: str) -> Iterator[str]:
    """Where `live` lacks something that `wanted` has; what it has besides is a default."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        for key, value in wanted.items():
            below = f"{text}.{key}" if text else key
            if key in live:
                yield from _changed(value, live[key], below)
            else:
                yield below
    elif isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        for index, (one, other) in enumerate(zip(wanted, live, strict=True)):
            yield from _changed(one, other, f"{text}[{index}]")
    elif wanted != live:
        yield text


def _remove(value: Any, path: Path) -> None:
    for each in path[:-1]:
        value = value[each]
    del value[path[-1]]


def _position(path: Path) -> list[tuple[int, str]]:
    """Sorts places so that the last one of each list comes last."""
    return [(each, "") if isinstance(each, int) else (-1, each) for each in path]


def _pointer(path: Path) -> str:
    return "".join("/" + str(each).replace("~", "~0").replace("/", "~1") for each in path)


def overwriting(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that leaves nothing but ours in an object, if it is still the same.

    It says that something was applied already: else the API server, at the first apply, would note the defaults down as
    somebody's.
    """
    metadata = found["metadata"]
    kept = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != ADOPT}
    patch: list[dict[str, Any]] = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": [_ownership(wanted)]},
        {
            "op": "add",
            "path": "/metadata/labels",
            "value": {**(metadata.get("labels") or {}), **wanted["metadata"]["labels"]},
        },
        {"op": "add", "path": "/metadata/annotations", "value": {**kept, **wanted["metadata"]["annotations"]}},
    ]
    for key in (found.keys() | wanted.keys()) - {"apiVersion", "kind", "metadata", "status"}:
        if key in wanted:
            patch.append({"op": "add", "path": f"/{key}", "value": wanted[key]})
        else:
            patch.append({"op": "remove", "path": f"/{key}"})
    return patch


def _ownership(wanted: Mapping[str, Any]) -> dict[str, Any]:
    labels: dict[str, Any] = {f"f:{key}": {} for key in wanted["metadata"]["labels"]}
    return {
        "manager": MANAGER,
        "operation": "Apply",
        "apiVersion": wanted["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": labels}},
    }
