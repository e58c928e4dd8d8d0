"""What the functions count of themselves; the host's `/metrics` shows it."""

from __future__ import annotations

from collections import Counter
from typing import Final

UNANNOUNCED: Final = "serving_stack_unannounced_changes"

HELP: Final = {
    UNANNOUNCED: "Components that a tick found changed although no event had told of it; grows where events get lost.",
}
"""Each count by the name of its metric, and what it means."""

COUNTS: Final[Counter[str]] = Counter(dict.fromkeys(HELP, 0))
