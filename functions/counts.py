"""What the functions count of themselves; the host's `/metrics` shows it."""

from __future__ import annotations

from collections import Counter
from typing import Final

UNANNOUNCED: Final = "serving_stack_unannounced_changes"
DEAD_LETTERS: Final = "serving_stack_dead_letters"

HELP: Final = {
    UNANNOUNCED: "Components that a tick found changed although no event had told of it; grows where events get lost.",
    DEAD_LETTERS: "Events that the Broker could not deliver to their function.",
}
"""Each count by the name of its metric, and what it means."""

COUNTS: Final[Counter[str]] = Counter(dict.fromkeys(HELP, 0))
