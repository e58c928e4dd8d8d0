from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from functions.access.discovery import DiscoveryReader
from functions.access.errors import Unreachable
from tests.access.serving import client_of, serve

AGGREGATED = {"Content-Type": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


def aggregated(*items: Any) -> dict[str, Any]:
    return {"kind": "APIGroupDiscoveryList", "items": list(items)}


def group(*versions: Any, name: Any = "g") -> dict[str, Any]:
    return {"metadata": {"name": name}, "versions": list(versions)}


def plain(*groups: Any) -> dict[str, Any]:
    return {"kind": "APIGroupList", "groups": list(groups)}


async def read(documents: dict[str, Any]) -> Any:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        document = documents[request.path]
        response = web.json_response(document)
        if isinstance(document, dict) and document.get("kind") == "APIGroupDiscoveryList":
            response.headers.update(AGGREGATED)
        return response

    async with serve(answer) as url, client_of(url) as client:
        return await DiscoveryReader(client).read(["g"])


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param(
            {
                "/apis": aggregated(
                    group(
                        {"version": "v1", "resources": [{"resource": "things", "verbs": ["get", "create"]}]},
                        {"version": "v1beta1", "freshness": "Stale"},
                    ),
                    {"metadata": {"name": "empty"}},
                )
            },
            id="aggregated",
        ),
        pytest.param(
            {
                "/apis": plain(
                    {"name": "g", "versions": [{"version": "v1"}, {"version": "v1beta1"}]}, {"name": "other"}
                ),
                "/apis/g/v1": {"resources": [{"name": "things", "verbs": ["get", "create"]}]},
                "/apis/g/v1beta1": {},
            },
            id="one-by-one",
        ),
    ],
)
async def test_what_is_served(documents: dict[str, Any]) -> None:
    found = await read(documents)
    assert found.verbs("g", "v1", "things") == {"get", "create"}
    assert found.versions("g", "things") == ("v1",)
    assert not found.serves("g", "v1beta1", "things")
    assert not found.is_stale("g", "v1")
    assert found.is_stale("g", "v1beta1") is (documents["/apis"]["kind"] == "APIGroupDiscoveryList")


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        pytest.param({"/apis": [1]}, "/apis is no JSON object", id="list"),
        pytest.param({"/apis": {"kind": "Other"}}, "/apis lists no groups", id="other-kind"),
        pytest.param({"/apis": aggregated({})}, "/apis has an entry of another form", id="no-metadata"),
        pytest.param({"/apis": aggregated({"metadata": {}})}, "of another form", id="no-name"),
        pytest.param({"/apis": aggregated({"metadata": "m"})}, "of another form", id="metadata-text"),
        pytest.param({"/apis": aggregated(5)}, "of another form", id="number"),
        pytest.param({"/apis": {**aggregated(), "items": 5}}, "of another form", id="items-number"),
        pytest.param({"/apis": aggregated(group(name=["g"]))}, "of another form", id="name-list"),
        pytest.param({"/apis": aggregated({**group(), "versions": 5})}, "of another form", id="versions-number"),
        pytest.param({"/apis": aggregated(group("v1"))}, "of another form", id="version-text"),
        pytest.param({"/apis": aggregated(group({}))}, "of another form", id="version-nameless"),
        pytest.param({"/apis": aggregated(group({"version": 1}))}, "of another form", id="version-number"),
        pytest.param(
            {"/apis": aggregated(group({"version": "v1", "resources": {"a": 1}}))},
            "of another form",
            id="resources-map",
        ),
        pytest.param(
            {"/apis": aggregated(group({"version": "v1", "resources": [{"resource": "r", "verbs": [{}]}]}))},
            "of another form",
            id="verbs-objects",
        ),
        pytest.param({"/apis": plain({"versions": []})}, "/apis has an entry of another form", id="plain-nameless"),
        pytest.param({"/apis": plain({"name": "g"})}, "/apis has an entry of another form", id="plain-versionless"),
        pytest.param(
            {"/apis": plain({"name": "g", "versions": [{"version": "v1"}]}), "/apis/g/v1": [1]},
            "/apis/g/v1 has an entry of another form",
            id="plain-group-list",
        ),
        pytest.param(
            {"/apis": plain({"name": "g", "versions": [{"version": "v1"}]}), "/apis/g/v1": {"resources": [{}]}},
            "/apis/g/v1 has an entry of another form",
            id="plain-resource-nameless",
        ),
    ],
)
async def test_what_no_api_server_would_say(documents: dict[str, Any], said: str) -> None:
    with pytest.raises(Unreachable, match="does not answer like a Kubernetes API server") as caught:
        await read(documents)
    assert said in str(caught.value)
