"""The filters of a Trigger, compiled to one predicate over events.

`events.triggers` calls it. The dialects are those of the Subscriptions API that Knative's brokers share: exact,
prefix, suffix, all, any and not; besides the older `filter.attributes`. Stricter than Knative on purpose: what its
broker would accept and then ignore, so that a Trigger passes every event, is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from events.event import Event

Predicate: TypeAlias = Callable[[Event], bool]

_NAME: Final = re.compile(r"[a-z0-9]+", re.ASCII)
_COMPARISONS: Final[dict[str, Callable[[str, str], bool]]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
}
_DIALECTS: Final = (*_COMPARISONS, "all", "any", "not")


class InvalidFilter(ValueError):  # noqa: N818 - named for what the filter is
    """A filter cannot be used; the text is one line that starts with the field, such as `filters[0].exact`."""


def compile_filters(filters: object, attributes: object = None) -> Predicate:
    """Compiles what stands under a Trigger's `spec`.

    Args:
        filters: `spec.filters`: entries of one dialect each, which must all match. None or empty when absent.
        attributes: `spec.filter.attributes`, which counts only without `filters`, as in Knative.

    Returns:
        Whether an event passes. Without any filter every event does.

    Raises:
        InvalidFilter: Something in it is not supported or would not mean what it says.
    """
    # Both are read, so that a mistake shows in the part that does not count as well.
    older = None if attributes is None else _comparison("exact", attributes, "filter.attributes")
    if filters is None or filters == []:
        return older or _all([])
    return _all(_entries(filters, "filters"))


def _entries(filters: object, where: str) -> list[Predicate]:
    if not isinstance(filters, list) or not filters:
        raise InvalidFilter(f"{where}: must be a list of filters that is not empty")
    return [_entry(entry, f"{where}[{index}]") for index, entry in enumerate(filters)]


def _entry(entry: object, where: str) -> Predicate:
    if not isinstance(entry, dict) or len(entry) != 1:
        raise InvalidFilter(f"{where}: must be an object with exactly one of {', '.join(_DIALECTS)}")
    dialect, value = next(iter(entry.items()))
    where = f"{where}.{dialect}"
    if dialect in _COMPARISONS:
        return _comparison(dialect, value, where)
    if dialect == "all":
        return _all(_entries(value, where))
    if dialect == "any":
        return _any(_entries(value, where))
    if dialect == "not":
        return _not(_entry(value, where))
    if dialect == "cesql":
        raise InvalidFilter(
            f"{where}: CESQL is not supported by the embedded broker; use {', '.join(_DIALECTS)} instead"
        )
    raise InvalidFilter(f"{where}: is no filter dialect; there are {', '.join(_DIALECTS)}")


def _comparison(dialect: str, attributes: object, where: str) -> Predicate:
    if not isinstance(attributes, dict) or not attributes:
        raise InvalidFilter(f"{where}: must map at least one attribute to a value")
    for name, value in attributes.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidFilter(f"{where}: {name!r} is no attribute name (lower-case letters and digits)")
        if not isinstance(value, str):
            raise InvalidFilter(f"{where}.{name}: must be a string; put quotes around it")
        if not value:
            raise InvalidFilter(
                f"{where}.{name}: is empty; Knative would drop the filter and pass every event, so leave it out"
            )
    wanted = tuple(attributes.items())
    compare = _COMPARISONS[dialect]

    def matches(event: Event) -> bool:
        for name, value in wanted:
            actual = event.attribute(name)
            if actual is None or not compare(actual, value):
                return False
        return True

    return matches


def _all(predicates: list[Predicate]) -> Predicate:
    return predicates[0] if len(predicates) == 1 else lambda event: all(each(event) for each in predicates)


def _any(predicates: list[Predicate]) -> Predicate:
    return lambda event: any(each(event) for each in predicates)


def _not(predicate: Predicate) -> Predicate:
    return lambda event: not predicate(event)
