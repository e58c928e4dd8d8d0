"""Who may call where a token is asked for: the hub says whose it is, for this audience and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from functions.access import kubeconfig
from functions.access.client import Client
from functions.host.callers import REVIEWS, Callers
from tests.support import apply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from events.event import Event
    from functions.local.instance import ControlPlane
    from functions.world import World
    from tests.host.conftest import Serve

AUDIENCE = "modelplane-serving-stack"
OURS = "modelplane-serving-stack"
HEADERS = {"ce-id": "1", "ce-source": "/x", "ce-type": "t", "ce-specversion": "1.0"}


async def handled(_: Event, __: World) -> Sequence[Event]:
    return ()


def token(plane: ControlPlane, namespace: str, *audiences: str) -> str:
    """Of ServiceAccount `sender` in a namespace; for the API server itself where no audience is named."""
    metadata = {"name": namespace}
    apply(plane.api, f"/api/v1/namespaces/{namespace}", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/sender"
    apply(plane.api, path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sender"}})
    spec = {"audiences": list(audiences), "expirationSeconds": 600}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(plane.api.request("POST", f"{path}/token", request).body["status"]["token"])


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Reviewed(Client):
    """Counts the reviews."""

    count = 0

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        assert path == REVIEWS
        self.count += 1
        return await super().create(path, body)


@pytest.fixture
async def hub(clean: ControlPlane) -> AsyncIterator[Reviewed]:
    client = Reviewed(kubeconfig.load_file(clean.kubeconfig))
    yield client
    await client.close()


async def post(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/handled", headers=HEADERS | headers) as answer:
        return answer.status, await answer.text()


async def test_a_token_of_ours_for_this_audience_lets_in(clean: ControlPlane, hub: Reviewed, serve: Serve) -> None:
    url = await serve(handled, callers=Callers(hub, AUDIENCE, OURS, monotonic=Time()))
    assert await post(url, Authorization=f"Bearer {token(clean, OURS, AUDIENCE)}") == (204, "")


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic eDp5", "Bearer not.a.token", f"Bearer {'x' * 8_000}", "Bearer ünïcode"],
)
async def test_without_a_token_nobody_gets_in(hub: Reviewed, serve: Serve, authorization: str) -> None:
    url = await serve(handled, callers=Callers(hub, AUDIENCE, OURS, monotonic=Time()), head_seconds=5)
    status, text = await post(url, **({"Authorization": authorization} if authorization else {}))
    assert status == 401
    assert text == "a token for this audience is required"


async def test_a_token_for_another_audience_is_none(clean: ControlPlane, hub: Reviewed, serve: Serve) -> None:
    url = await serve(handled, callers=Callers(hub, AUDIENCE, OURS, monotonic=Time()))
    for audiences in ((), ("another",)):
        status, _ = await post(url, Authorization=f"Bearer {token(clean, OURS, *audiences)}")
        assert status == 401


async def test_another_namespaces_token_is_forbidden(clean: ControlPlane, hub: Reviewed, serve: Serve) -> None:
    url = await serve(handled, callers=Callers(hub, AUDIENCE, OURS, monotonic=Time()))
    status, text = await post(url, Authorization=f"Bearer {token(clean, 'tenant', AUDIENCE)}")
    assert (status, text) == (403, f"only ServiceAccounts of {OURS} may call")


async def test_health_needs_no_token(hub: Reviewed, serve: Serve) -> None:
    url = await serve(handled, callers=Callers(hub, AUDIENCE, OURS, monotonic=Time()))
    async with aiohttp.ClientSession() as session, session.get(f"{url}/health/readiness") as answer:
        assert answer.status == 200


async def test_a_token_is_reviewed_once_a_minute(clean: ControlPlane, hub: Reviewed, serve: Serve) -> None:
    time = Time()
    url = await serve(handled, callers=Callers(hub, AUDIENCE, OURS, monotonic=time))
    shown = f"Bearer {token(clean, OURS, AUDIENCE)}"
    for _ in range(3):
        await post(url, Authorization=shown)
    assert hub.count == 1
    time.now = 61
    await post(url, Authorization=shown)
    assert hub.count == 2


async def test_a_hub_that_cannot_be_asked_means_later(serve: Serve, tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {token: t}}]}"
    )
    client = Client(kubeconfig.load_file(nowhere))
    url = await serve(handled, callers=Callers(client, AUDIENCE, OURS, monotonic=Time()))
    status, text = await post(url, Authorization="Bearer some.token")
    assert status == 503
    assert "some.token" not in text
    await client.close()
