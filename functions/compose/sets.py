"""The sets of composed objects, in the order in which people read of them."""

from __future__ import annotations

from typing import Final

from functions.compose import gateway, modelexpress, queues

COMPOSITIONS: Final = (gateway.COMPOSITION, queues.COMPOSITION, modelexpress.COMPOSITION)
