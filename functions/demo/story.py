"""The story that the demonstration tells: an empty cluster, its substrate piece by piece, a loss, and its return."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Self

import yaml
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from functions.access.definitions import CRDS
from functions.access.errors import NotFound
from functions.access.targets import SECRETS
from functions.catalog import Stack, component
from functions.clusters import API_VERSION, InferenceCluster
from functions.conditions import REQUIREMENTS_MET, Status, checked_components
from functions.demo.screen import Screen
from functions.deploy_files import deploy_directory
from functions.hub import CLUSTERS
from functions.local import substrate
from functions.watch.runtime import Runtime
from functions.world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from functions.access.client import Client
    from functions.catalog import Component
    from functions.local.instance import ControlPlane

NAME: Final = "gpu-1"
STACK: Final = Stack.STANDARD
LOST: Final = "trust-manager"
WITHIN: Final = 20.0
"""Seconds that a condition may take to follow before the demonstration fails."""
_MANAGER: Final = "serving-stack-demo"


async def tell(control_plane: ControlPlane) -> int:
    """Runs the demonstration; answers with the exit code: 1 where a condition did not follow."""
    world = World.open(str(control_plane.kubeconfig))
    client = world.hub.client
    try:
        with Screen(STACK) as screen:
            screen.say(f"A Kubernetes API server of its own is ready at {client.server}.")
            await _install_hub(client)
            async with Runtime(world), _Follower(client, screen) as follower:
                return await _tell(client, screen, follower, control_plane)
    finally:
        await world.close()


async def _tell(client: Client, screen: Screen, follower: _Follower, control_plane: ControlPlane) -> int:
    screen.say(f"{NAME} is registered: an InferenceCluster that brings its own substrate.")
    lost = component(LOST)
    try:
        await _register(client, control_plane)
        await follower.until(REQUIREMENTS_MET, lambda _, reason: reason == "MissingRequirements")
        screen.say("Its substrate is installed, component by component.")
        latencies = [
            await follower.cause(each, Status.TRUE, substrate.add(client, each.key))
            for each in checked_components(STACK)
        ]
        await follower.until(REQUIREMENTS_MET, lambda status, _: status is Status.TRUE)
        screen.say(f"Nothing is missing any more. Now {LOST} is uninstalled, and installed again.")
        latencies.append(await follower.cause(lost, Status.FALSE, substrate.remove(client, LOST)))
        latencies.append(await follower.cause(lost, Status.TRUE, substrate.add(client, LOST)))
        await follower.until(REQUIREMENTS_MET, lambda status, _: status is Status.TRUE)
    except TimeoutError:
        screen.say(f"A condition did not follow within {WITHIN:.0f} s; this is a bug of serving-stack.")
        return 1
    screen.summary(latencies)
    return 0


class _Follower:
    """Watches the InferenceCluster, shows each condition that turns, and lets the story wait for one."""

    def __init__(self, client: Client, screen: Screen) -> None:
        self._client = client
        self._screen = screen
        self._conditions: dict[str, tuple[Status, str]] = {}
        self._turned: dict[str, float] = {}
        self._change = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def cause(self, component: Component, status: Status, change: Awaitable[Sequence[str]]) -> float:
        """Makes a change and waits for the component's condition; milliseconds from the change made to the condition.

        Raises:
            TimeoutError: It does not follow.
        """
        await change
        made = perf_counter()
        await self.until(component.condition, lambda now, _: now is status)
        milliseconds = max(0.0, (self._turned[component.condition] - made) * 1000)
        self._screen.took(component.condition, milliseconds)
        return milliseconds

    async def until(self, type_: str, reached: Callable[[Status, str], bool]) -> None:
        """Waits for a condition to be as it should.

        Raises:
            TimeoutError: It does not become so.
        """
        async with asyncio.timeout(WITHIN), self._change:
            await self._change.wait_for(lambda: type_ in self._conditions and reached(*self._conditions[type_]))

    async def _follow(self) -> None:
        while True:
            async with contextlib.aclosing(self._client.watch(CLUSTERS)) as events:
                async for event in events:
                    if event["object"]["metadata"]["name"] == NAME:
                        await self._seen(event["object"])

    async def _seen(self, found: dict[str, Any]) -> None:
        now = perf_counter()
        async with self._change:
            for type_, condition in InferenceCluster.from_object(found).conditions.items():
                said = (condition.status, condition.reason)
                before = self._conditions.get(type_)
                if before == said:
                    continue
                self._conditions[type_] = said
                if before is None or before[0] is not condition.status:
                    self._turned[type_] = now
                self._screen.turned(condition)
            self._change.notify_all()


async def _install_hub(client: Client) -> None:
    for file in sorted((deploy_directory() / "knative" / "crds").glob("inference*.yaml")):
        manifest = yaml.safe_load(file.read_text())
        await client.apply(f"{CRDS}/{manifest['metadata']['name']}", manifest, manager=_MANAGER)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "modelplane-system"}}
    await client.apply("/api/v1/namespaces/modelplane-system", namespace, manager=_MANAGER)


async def _register(client: Client, control_plane: ControlPlane) -> None:
    """The InferenceCluster and its kubeconfig; hub and target are one server here."""
    kubeconfig = base64.b64encode(control_plane.kubeconfig.read_bytes()).decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "gpu-1-kubeconfig"},
        "data": {"kubeconfig": kubeconfig},
    }
    await client.apply(f"{SECRETS}/gpu-1-kubeconfig", secret, manager=_MANAGER)
    cluster = {
        "apiVersion": API_VERSION,
        "kind": "InferenceCluster",
        "metadata": {"name": NAME},
        "spec": {
            "stack": str(STACK),
            "cluster": {
                "source": "Existing",
                "existing": {"secretRef": {"name": "gpu-1-kubeconfig"}, "components": "Provided"},
            },
        },
    }
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(NotFound), wait=wait_fixed(0.05), stop=stop_after_delay(WITHIN), reraise=True
    )
    await retrying(client.apply, f"{CLUSTERS}/{NAME}", cluster, manager=_MANAGER)  # until its definition is served
