"""Objects as manifests that kubectl applies: a YAML document for each, or a List in JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# What YAML readers take for a number or a truth value although PyYAML, which follows an older YAML, takes it for text.
_NO_TEXT: Final = re.compile(r"[-+]?(0[box][\da-f_]+|[\d._]+(e[-+]?\d+)?)|[yn]", re.IGNORECASE)


class _Dumper(yaml.SafeDumper):
    """Writes manifests as people do: certificates line by line, nothing by reference."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _NO_TEXT.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(objects: Iterable[tuple[Mapping[str, Any], str]]) -> str:
    """A document for each object, with a comment of one line at its head."""
    return "".join(f"---\n# {comment}\n{_document(each)}" for each, comment in objects)


def as_json(objects: Sequence[Mapping[str, Any]]) -> str:
    """A List of the objects."""
    whole = {"apiVersion": "v1", "kind": "List", "items": objects}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _document(content: Mapping[str, Any]) -> str:
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text
