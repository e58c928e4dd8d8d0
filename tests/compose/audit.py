"""What the functions asked of a target, as the target's API server logged it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.compose.needs import CUSTOM_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FUNCTIONS = "functions"
"""The user that the functions are on the target; nobody else is."""


@dataclass(frozen=True)
class Asked:
    """The requests of the functions for objects of custom kinds.

    Attributes:
        log: The audit log, with the metadata of each request at least.
    """

    log: Path

    def in_vain(self) -> list[str]:
        """Verb and path of each that went to an API that was not served then, or no longer for such a request.

        The answer to a path that nobody serves is plain text, and 404 is all that is logged of it; of an object that is
        not there, the log has the API server's own Status with its reason.
        """
        return [
            f"{each['verb']} {each['requestURI'].partition('?')[0]}"
            for each in self._requests()
            if (each["responseStatus"]["code"] == 404 and "reason" not in each["responseStatus"])
            or each["responseStatus"]["code"] in {403, 405}
        ]

    def applied(self) -> set[str]:
        """The names of the CRDs whose instances were written."""
        return {
            f"{each['objectRef']['resource']}.{each['objectRef']['apiGroup']}"
            for each in self._requests()
            if each["verb"] == "patch" and each["responseStatus"]["code"] in {200, 201}
        }

    def _requests(self) -> Iterator[dict[str, Any]]:
        roots = {f"/apis/{each.api_version}/" for each in CUSTOM_KINDS}
        with self.log.open() as lines:
            for line in lines:
                found: dict[str, Any] = json.loads(line)
                if found["user"]["username"] == FUNCTIONS and any(
                    found["requestURI"].startswith(each) for each in roots
                ):
                    yield found
