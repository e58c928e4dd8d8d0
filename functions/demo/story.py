"""The story that the demonstration tells.

An empty cluster, its substrate piece by piece, a loss and its return; and by the way the objects that Modelplane needs,
what they wait for, how they are kept, and how they go.
"""

from __future__ import annotations

import asyncio
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

from functions.access.client import Client
from functions.access.errors import AccessError
from functions.catalog import Stack, component
from functions.compose.gateway import CLUSTER_CA, COMPOSITION, GATEWAY, NAMESPACE
from functions.compose.report import REMOVED
from functions.compose.states import Reason
from functions.conditions import REQUIREMENTS_MET, Status, checked_components
from functions.demo import acts
from functions.demo.controllers import Controllers
from functions.demo.follower import Follower, NotFollowedError
from functions.demo.picture import Picture, duration
from functions.demo.screen import Screen
from functions.local import substrate
from functions.local.errors import LocalError
from functions.watch.runtime import Runtime
from functions.world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from functions.catalog import Component
    from functions.local.instance import ControlPlane

NAME: Final = "gpu-1"
STACK: Final = Stack.STANDARD
LOST: Final = "trust-manager"
PLAIN: Final = 80
"""Port of the listener that somebody adds."""
WITHIN: Final = 30.0
"""Seconds that something may take to follow before the demonstration fails."""
HOLD: Final = 0.8
"""Seconds that the Gateway's controller takes to let it go."""
_BUNDLE: Final = f"Bundle {CLUSTER_CA}"
_GATEWAY: Final = f"Gateway {GATEWAY}"
_BEAT: Final = 0.5
"""Seconds that a person gets to look at what has just turned."""


async def tell(control_plane: ControlPlane, *, within: float = WITHIN) -> int:
    """Runs the demonstration; answers with the exit code: 1 where something did not follow.

    Args:
        control_plane: An empty one, which is hub and target.
        within: Seconds that something may take to follow.
    """
    world = World.open(str(control_plane.kubeconfig))
    kubeconfig = control_plane.kubeconfig.read_bytes()
    picture = Picture(STACK, COMPOSITION)
    try:
        with Screen(picture) as screen:
            return await _tell(world, kubeconfig, picture, screen, within)
    finally:
        await world.close()


async def _tell(world: World, kubeconfig: bytes, picture: Picture, screen: Screen, within: float) -> int:
    # What people and controllers do is theirs: it must not fail where it takes a busy machine long.
    client = Client(world.hub.client.connection, timeout=WITHIN)
    follower = Follower(client.connection, NAME, COMPOSITION, picture, within=within, changed=screen.changed)
    story = _Story(client, screen, follower, picture)
    try:
        screen.say(f"A Kubernetes API server of its own is ready at {client.server}.")
        await acts.install_hub(client)
        async with Runtime(world), Controllers(client, hold=HOLD), follower:
            trouble = await story.tell(kubeconfig)
    finally:
        await client.close()
    screen.close()
    if trouble:
        screen.say(trouble)
        return 1
    story.summary()
    return 0


class _Story:
    """Its acts, each of which changes something and waits for what follows."""

    def __init__(self, client: Client, screen: Screen, follower: Follower, picture: Picture) -> None:
        self._client = client
        self._screen = screen
        self._follower = follower
        self._picture = picture
        self._open_for = 0.0

    async def tell(self, kubeconfig: bytes) -> str:
        """All of it; answers with what did not follow, if anything did not."""
        try:
            await self.begin(kubeconfig)
            await self.requirements()
            await self.gateway()
            await self.intruder()
            await self.end()
        except NotFollowedError as error:
            return f"{error}; this is a bug of serving-stack."
        except (AccessError, LocalError) as error:
            return f"The demonstration cannot go on: {error}"
        return ""

    async def begin(self, kubeconfig: bytes) -> None:
        """An empty cluster."""
        self._screen.say(f"{NAME} is registered: an InferenceCluster that brings its own substrate.")
        await acts.register(self._client, NAME, STACK, kubeconfig)
        await self._reason(REQUIREMENTS_MET, "MissingRequirements")
        await self._reason(COMPOSITION.condition, Reason.WAITING_FOR_REQUIREMENTS)
        await self._beat()

    async def requirements(self) -> None:
        """Its substrate is installed; a part of it is lost, and is there again."""
        self._screen.say("Its substrate is installed, component by component; objects follow.")
        for each in checked_components(STACK):
            await self._cause(each, Status.TRUE, substrate.add(self._client, each.key))
        await self._reason(REQUIREMENTS_MET, REQUIREMENTS_MET)
        await self._reason(COMPOSITION.condition, Reason.WAITING_FOR_CLIENT_CA)
        await self._beat()
        lost = component(LOST)
        self._screen.say(f"Now {LOST} is uninstalled: its Bundle goes with its API, all else stays.")
        await self._cause(lost, Status.FALSE, substrate.remove(self._client, LOST))
        await self._reason(COMPOSITION.condition, Reason.WAITING_FOR_REQUIREMENTS)
        await self._beat()
        self._screen.say("It is installed again.")
        await self._cause(lost, Status.TRUE, substrate.add(self._client, LOST))
        await self._reason(REQUIREMENTS_MET, REQUIREMENTS_MET)
        await self._follower.until(f"{_BUNDLE} was not there again", lambda: self._picture.stands(_BUNDLE))

    async def gateway(self) -> None:
        """Somebody says whose clients the gateway may let in."""
        await self._reason(COMPOSITION.condition, Reason.WAITING_FOR_CLIENT_CA)
        self._screen.say("Without a client CA the Gateway would let in anybody, so it is withheld.")
        await self._beat()
        self._screen.say("InferenceGateway eu publishes its client CA.")
        await acts.publish_client_ca(self._client, "eu", NAME)
        await self._reason(COMPOSITION.condition, Reason.APPLIED)
        what = f"status.gateway of {NAME} was not published"
        await self._follower.until(what, lambda: bool(self._picture.published.get("hostname")))
        self._screen.say(f"The gateway is ready; {NAME} publishes its address, {self._picture.published['address']}.")
        await self._beat()

    async def intruder(self) -> None:
        """Somebody opens a way in for everybody."""
        self._screen.say(f"Somebody adds a listener without TLS to the Gateway, on port {PLAIN}.")
        generation = await acts.add_listener(self._client, GATEWAY, NAMESPACE, PLAIN)
        added = perf_counter()

        def is_restored() -> bool:
            live = self._picture.live(_GATEWAY)
            return live is not None and live["metadata"]["generation"] > generation and self._picture.stands(_GATEWAY)

        await self._follower.until(f"the listener on port {PLAIN} was not taken out", is_restored)
        self._open_for = (perf_counter() - added) * 1000
        self._screen.say(f"It was taken out again after {self._open_for:.0f} ms.")
        await self._beat()

    async def end(self) -> None:
        """The InferenceCluster is deleted."""
        self._screen.say(f"{NAME} is deleted: its objects go in reverse, each when the former is gone.")
        self._screen.next_table()
        await acts.delete_cluster(self._client, NAME)
        await self._follower.until(f"{NAME} and its objects were not gone", lambda: self._picture.is_empty)
        await self._follower.until("its last Event was not there", lambda: self._picture.reasons[-1:] == [REMOVED])
        left = await acts.left_behind(self._client, COMPOSITION, NAME)
        if left:
            raise NotFollowedError(f"{', '.join(left)} was left behind")

    def summary(self) -> None:
        """How long all of it took."""
        picture, say = self._picture, self._screen.say
        told = ", ".join(picture.reasons)
        say(f"{NAME} is gone, and nothing that was made for it is left. Its Events told of it: {told}.")
        say("How long it took, median and slowest:")
        for what, times, since in (
            (
                f"{len(picture.followed)} conditions",
                picture.followed,
                "after the last CRD was accepted (up to 600 KB)",
            ),
            (f"{len(picture.applied)} objects", picture.applied, "after the last thing that each waited for"),
            ("the listener", [self._open_for], "from its coming to its going"),
            ("the deletion", [picture.torn_down], f"of which a controller held for {HOLD * 1000:.0f} ms"),
        ):
            slowest = duration(max(times)) if len(times) > 1 else ""
            say(f"  {what:<13} {duration(median(times)):>7} {slowest:>7}  {since}")

    async def _cause(self, component: Component, status: Status, change: Awaitable[Sequence[str]]) -> None:
        """Makes a change, and waits for the component's condition."""
        await change
        made = perf_counter()

        def turned() -> bool:
            found = self._picture.condition(component.condition)
            return found is not None and found.status is status

        await self._follower.until(f"{component.condition} did not become {status}", turned)
        self._screen.took(component.key, self._picture.follows(component.condition, made))

    async def _reason(self, condition: str, reason: str) -> None:
        def reached() -> bool:
            found = self._picture.condition(condition)
            return found is not None and found.reason == reason

        await self._follower.until(f"{condition} did not become {reason}", reached)

    async def _beat(self) -> None:
        if self._screen.is_live:
            await asyncio.sleep(_BEAT)
