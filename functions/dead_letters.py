"""Takes what the Broker could not deliver: writes it down, counts it, and tells of it on the InferenceCluster.

Once the cause is mended, `serving-stack replay` sends them again.
"""

from __future__ import annotations

import base64
import binascii
import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from functions import rights
from functions.access.errors import AccessError
from functions.access.names import is_object_name
from functions.conditions import fit
from functions.counts import COUNTS, DEAD_LETTERS
from functions.function import Function
from functions.journal import write_down

if TYPE_CHECKING:
    from collections.abc import Sequence

    from events.event import Event
    from functions.world import World

NAME: Final = "dead-letters"
REASON: Final = "EventUndelivered"
_SAID: Final = 256
_log: Final = logging.getLogger(__name__)


async def dead_letters(event: Event, world: World) -> Sequence[Event]:
    """Records one; whatever else goes wrong, it is answered, for nobody delivers a dead letter twice."""
    await write_down(event, world)
    COUNTS[DEAD_LETTERS] += 1
    name = event.extensions.get("cluster", "")
    if not is_object_name(name):
        return ()
    try:
        found = await world.hub.cluster(name)
        if found is not None:
            await world.hub.tell(
                found,
                teller=f"modelplane-{NAME}",
                reason=REASON,
                message=undelivered(event),
                warning=True,
                now=world.clock.now(),
            )
    except AccessError as trouble:
        _log.warning("not told", extra={"cluster": name, "detail": str(trouble)})
    return ()


def undelivered(event: Event) -> str:
    """What could not be delivered, where to and why, in one line without anything that only one delivery has."""
    where = urlsplit(event.extensions.get("knativeerrordest", "")).path.strip("/") or "its subscriber"
    code = event.extensions.get("knativeerrorcode", "")
    why = ": ".join(fit(each, _SAID) for each in (code, _error(event)) if each)
    return f"{fit(event.type, _SAID)} was not delivered to {fit(where, _SAID)}" + (f": {why}" if why else "")


def _error(event: Event) -> str:
    """What the subscriber answered: Knative has it in base64, cut at any character, and older versions as it is."""
    data = event.extensions.get("knativeerrordata", "")
    try:
        return base64.b64decode(data[: len(data) // 4 * 4], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return data


FUNCTION: Final = Function(
    name=NAME,
    handler=dead_letters,
    wakes_on=(),
    emits=(),
    service="dead-letters",
    rights=(*rights.READ_CLUSTERS, *rights.TELL),
    records=True,
)
