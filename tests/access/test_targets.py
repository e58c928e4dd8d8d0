from __future__ import annotations

import base64
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from functions.access.errors import KubeconfigInvalid, Unreachable
from functions.access.targets import SECRETS, SecretKey, SecretVersion, Targets
from tests.access.serving import client_of, serve, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = SecretKey("target", "kubeconfig")


def kubeconfig(server: str = "https://host:6443", proof: str = "t", current: str = "x") -> bytes:
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": proof}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": current,
        }
    ).encode()


class Secrets:
    """The hub's Secrets; each content that is stored is a new version."""

    def __init__(self) -> None:
        self.data: dict[str, dict[str, str]] = {}
        self.version = 0
        self.asked: list[str] = []

    def put(self, content: bytes, name: str = "target") -> SecretVersion:
        self.data[name] = {"kubeconfig": base64.b64encode(content).decode()}
        self.version += 1
        return SecretVersion("uid", str(self.version))

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.raw_path)
        data = self.data.get(request.raw_path.removeprefix(f"{SECRETS}/"))
        if data is None:
            return web.json_response(status(404, "NotFound", "not found", {"kind": "secrets"}), status=404)
        found: dict[str, Any] = {"metadata": {"uid": "uid", "resourceVersion": str(self.version)}, "data": data}
        return web.json_response(found)


@contextlib.asynccontextmanager
async def hub() -> AsyncIterator[tuple[Secrets, Targets]]:
    secrets = Secrets()
    async with serve(secrets) as url, client_of(url) as client:
        targets = Targets(client)
        yield secrets, targets
        await targets.close()


async def test_a_secret_is_read_only_when_it_may_have_changed() -> None:
    async with hub() as (secrets, targets):
        first = secrets.put(kubeconfig())
        target = await targets.open("a", KEY)
        assert await targets.open("a", KEY, first) is target
        assert len(secrets.asked) == 1
        second = secrets.put(kubeconfig(proof="new"))
        assert await targets.open("a", KEY, second) is target
        assert target.client.connection.token == "new"
        third = secrets.put(kubeconfig("https://other"))
        assert (await targets.open("a", KEY, third)).client.server == "https://other"
        assert len(secrets.asked) == 3


async def test_a_refresh_tells_whether_anything_is_new() -> None:
    async with hub() as (secrets, targets):
        secrets.put(kubeconfig())
        target = await targets.open("a", KEY)
        assert await targets.refresh("a", KEY) is None
        secrets.put(kubeconfig(proof="new"))
        assert await targets.refresh("a", KEY) is target


async def test_a_refused_kubeconfig_says_the_same_until_it_is_mended() -> None:
    async with hub() as (secrets, targets):
        good = kubeconfig()
        secrets.put(good)
        target = await targets.open("a", KEY)
        said = []
        for content in [kubeconfig(current="gone")] * 2 + [b"["] * 2:
            with pytest.raises(KubeconfigInvalid) as caught:
                await targets.open("a", KEY, secrets.put(content))
            said.append(str(caught.value))
        assert (said[0], said[2]) == (said[1], said[3])
        assert said[0] != said[2]
        assert await targets.open("a", KEY, secrets.put(good)) is target
        assert target.client.connection.token == "t"


async def test_a_refused_kubeconfig_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hub() as (secrets, targets):
        secrets.put(b"- a\n" * 16_000)
        with pytest.raises(KubeconfigInvalid, match="not a mapping"):
            await targets.open("a", KEY)
        monkeypatch.setattr("functions.access.document.SIZE_LIMIT", 0)  # what is parsed now is refused as too large
        with pytest.raises(KubeconfigInvalid, match="not a mapping"):
            await targets.open("a", KEY)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("..", id="parent"),
        pytest.param("../../default/secrets/steal", id="other-namespace"),
        pytest.param("a/b", id="slash"),
        pytest.param("a?watch=1", id="query"),
        pytest.param("a#b", id="fragment"),
        pytest.param("%2e%2e", id="escaped"),
        pytest.param(" ", id="blank"),
        pytest.param("", id="empty"),
        pytest.param("a\n", id="newline"),
        pytest.param("A", id="capital"),
        pytest.param("a" * 254, id="long"),
    ],
)
async def test_a_name_that_no_secret_has_is_not_asked_for(name: str) -> None:
    async with hub() as (secrets, targets):
        with pytest.raises(KubeconfigInvalid, match=r"Secret modelplane-system/.* cannot exist.*secretRef"):
            await targets.open("a", SecretKey(name, "kubeconfig"))
        assert secrets.asked == []


async def test_there_is_no_such_secret_or_key() -> None:
    async with hub() as (secrets, targets):
        with pytest.raises(KubeconfigInvalid, match="Secret modelplane-system/target does not exist; create it"):
            await targets.open("a", KEY)
        secrets.put(kubeconfig())
        with pytest.raises(KubeconfigInvalid, match="has no key other; its keys are: kubeconfig"):
            await targets.open("a", SecretKey("target", "other"))


async def test_a_replaced_client_lives_for_one_more_generation() -> None:
    async with serve(Secrets()) as url, hub() as (secrets, targets):
        clients = []
        for number in range(3):
            version = secrets.put(kubeconfig(f"{url.replace('http', 'https')}/{number}"))
            clients.append((await targets.open("a", KEY, version)).client)
        said = []
        for client in clients:
            with pytest.raises(Unreachable) as caught:
                await client.get("/version")
            said.append("is no longer connected to" in str(caught.value))
    assert said == [True, False, False]
