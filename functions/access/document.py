"""Reads the text of a kubeconfig strictly into its named parts, and gives their fields by type; used by `kubeconfig`.

Messages name files, parts and fields, never a value: any value may be a secret in the wrong place.
"""

from __future__ import annotations

import base64
import binascii
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from functions.access.errors import KubeconfigInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import yaml

SIZE_LIMIT: Final = 1 << 20
_NAMED: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}


@dataclass(frozen=True, slots=True)
class Part:
    """A mapping within a kubeconfig.

    Attributes:
        where: What it is called in messages.
        fields: Its content; not in `repr`, which may end up in a log.
        file: The file that it stands in, None where it comes from a Secret.
    """

    where: str
    fields: Mapping[str, Any] = field(repr=False)
    file: Path | None = None

    def invalid(self, what: str) -> NoReturn:
        """Refuses this part.

        Raises:
            KubeconfigInvalid: Always.
        """
        raise KubeconfigInvalid(f"{self.where}: {what}")

    def text(self, name: str) -> str | None:
        """A string; None where it is absent or empty."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, str):
            self.invalid(f"{name} must be a string; put it in quotes")
        return value or None

    def flag(self, name: str) -> bool:
        """A boolean; False where it is absent."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, bool):
            self.invalid(f"{name} must be true or false")
        return bool(value)

    def data(self, name: str) -> bytes | None:
        """Base64, possibly wrapped over lines; None where it is absent or empty."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return base64.b64decode("".join(value.split()), validate=True)
        except (binascii.Error, ValueError):
            self.invalid(f"{name} is not base64")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.items(name)
        if not all(isinstance(each, str) for each in value):
            self.invalid(f"{name} must be a list of strings; put each in quotes")
        return tuple(value)

    def items(self, name: str) -> list[Any]:
        """A list; empty where it is absent."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, list):
            self.invalid(f"{name} must be a list")
        return value or []

    def part(self, name: str) -> Part | None:
        """A mapping within; None where it is absent."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.invalid(f"{name} must be a mapping")
        return Part(f"{self.where}, {name}", value, self.file)


@dataclass(frozen=True, slots=True)
class Document:
    """One kubeconfig, or several merged: the parts by name."""

    clusters: Mapping[str, Part]
    contexts: Mapping[str, Part]
    users: Mapping[str, Part]
    current_context: str | None


def parse(data: bytes, file: Path | None = None) -> Document:
    """Read one kubeconfig, YAML or JSON; an empty one has no parts.

    Raises:
        KubeconfigInvalid: It is not one, or a name is in it twice.
    """
    origin = "kubeconfig" if file is None else f"kubeconfig {file}"
    if len(data) > SIZE_LIMIT:
        raise KubeconfigInvalid(f"{origin} is larger than 1 MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise KubeconfigInvalid(f"{origin} is not UTF-8 text") from None
    content = _load(text, origin)
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise KubeconfigInvalid(f"{origin} is not a mapping; is it a kubeconfig?")
    whole = Part(origin, content, file)
    if (whole.text("kind") or "Config", whole.text("apiVersion") or "v1") != ("Config", "v1"):
        whole.invalid("kind must be Config and apiVersion v1; is it a kubeconfig?")
    clusters, contexts, users = (_named(whole, several) for several in _NAMED)
    return Document(clusters, contexts, users, whole.text("current-context"))


def merge(documents: Iterable[Document]) -> Document:
    """Several kubeconfigs as one: the first that has a name, or a current context, decides it, as with kubectl."""
    clusters: dict[str, Part] = {}
    contexts: dict[str, Part] = {}
    users: dict[str, Part] = {}
    current = None
    for document in documents:
        clusters = {**document.clusters, **clusters}
        contexts = {**document.contexts, **contexts}
        users = {**document.users, **users}
        current = current or document.current_context
    return Document(clusters, contexts, users, current)


def _named(whole: Part, several: str) -> dict[str, Part]:
    """A list of `{name: …, <kind>: {…}}` as parts by name."""
    one = _NAMED[several]
    found: dict[str, Part] = {}
    for number, entry in enumerate(whole.items(several), 1):
        place = f"{whole.where}: {several} entry {number}"
        if not isinstance(entry, dict):
            raise KubeconfigInvalid(f"{place} must be a mapping")
        name = Part(place, entry).text("name")
        if name is None:
            raise KubeconfigInvalid(f"{place} has no name")
        if name in found:
            whole.invalid(f'{several} has two entries named "{name}"')
        titled = f'{whole.where}: {one} "{name}"'
        inner = Part(titled, entry, whole.file).part(one)
        found[name] = Part(titled, inner.fields if inner else {}, whole.file)
    return found


def _load(text: str, origin: str) -> Any:
    if text.lstrip().startswith("{"):
        # As JSON where it is JSON: YAML takes no tabs.
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    import yaml  # noqa: PLC0415 - not needed for JSON, nor by who only reads this module's types

    try:
        return yaml.load(text, _loader())  # noqa: S506 - a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise KubeconfigInvalid(f"{origin} is not valid YAML without merge keys{place}") from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError):
        raise KubeconfigInvalid(f"{origin} is not valid YAML") from None


@functools.cache
def _loader() -> type[yaml.CSafeLoader]:
    import yaml  # noqa: PLC0415 - as above

    tags = {f"tag:yaml.org,2002:{each}" for each in ("bool", "map", "merge", "null", "seq", "str")}

    class Loader(yaml.CSafeLoader):
        """Knows texts, booleans, nulls, lists and mappings alone: numbers to the base of 60 take seconds to read.

        Shares aliased nodes, which costs nothing, and takes no merge keys, which would multiply them.
        Its scanner itself limits the depth.
        """

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
                raise yaml.MarkedYAMLError(problem_mark=node.start_mark)

    Loader.yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in resolvers if tag in tags]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.yaml_constructors = {
        tag: make for tag, make in yaml.CSafeLoader.yaml_constructors.items() if tag is None or tag in tags
    }
    return Loader
