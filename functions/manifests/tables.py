"""The tables of `deploy/knative/README.md`: which events there are, what wakes each function, who may do what."""

from __future__ import annotations

import inspect
from itertools import chain
from typing import TYPE_CHECKING

from events.data import MODELS
from events.types import KNOWN
from functions.function import EVERY_EVENT
from functions.rights import atoms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from functions.function import Function, Wake
    from functions.rights import Right


def events(functions: Sequence[Function]) -> str:
    """A line for each type: what it says, who emits it, who wakes on it."""
    return _table(("type", "says", "from", "wakes"), (_event(each, functions) for each in MODELS if each in KNOWN))


def wakes(functions: Sequence[Function]) -> str:
    """A line for each function: where it runs and what wakes it."""
    return _table(
        ("function", "Service", "wakes on"),
        ((f"`{each.name}`", each.service, _wakes(each)) for each in functions),
    )


def rights(accounts: Mapping[str, Iterable[Right]]) -> str:
    """A line for each ServiceAccount and resource."""
    return _table(
        ("account", "resource", "in", "verbs"), chain.from_iterable(map(_rights, accounts, accounts.values()))
    )


def _event(type_: str, functions: Sequence[Function]) -> tuple[str, ...]:
    doc = " ".join((inspect.getdoc(MODELS[type_]) or "").partition("\n\n")[0].split())
    emitters = sorted({_family(each.name) for each in functions if type_ in each.emits})
    woken = sorted({_family(each.name) for each in functions for wake in each.wakes_on if _matches(wake, type_)})
    return f"`{type_}`", doc.partition(": ")[2] or doc, ", ".join(emitters) or "outside", ", ".join(woken)


def _family(name: str) -> str:
    family, slash, _ = name.partition("/")
    return f"{family}/…" if slash else name


def _matches(wake: Wake, type_: str) -> bool:
    if not wake.type:
        return True
    return type_.startswith(wake.type) if wake.type.endswith(".") else type_ == wake.type


def _wakes(function: Function) -> str:
    if not function.wakes_on:
        return "what could not be delivered" if function.records else "nothing yet"
    if EVERY_EVENT in function.wakes_on:
        return "every event"
    causes: dict[str, list[str]] = {}
    for each in function.wakes_on:
        of = dict(each.attributes)
        what = of.get("kind") or of.get("component")
        causes.setdefault(f"{each.type}*" if each.type.endswith(".") else each.type, []).extend([what] if what else [])
    said = (f"`{cause}`" + (f" of {', '.join(dict.fromkeys(of))}" if of else "") for cause, of in causes.items())
    return "<br>".join(said)


def _rights(account: str, rights: Iterable[Right]) -> Iterator[tuple[str, ...]]:
    verbs: dict[tuple[str, str, str, bool], set[str]] = {}
    for each in atoms(rights):
        key = (each.namespace, each.group, each.resource, bool(each.name))
        verbs.setdefault(key, set()).add(each.verb)
    for (namespace, group, resource, named), may in sorted(verbs.items()):
        what = f"{resource}.{group}" if group else resource
        by_name = ", by name" if named else ""
        yield f"`{account}`", f"{what}{by_name}", namespace or "the cluster", ", ".join(sorted(may))
    if not verbs:
        yield f"`{account}`", "nothing", "", ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(each)} |\n" for each in lines)
