"""What somebody who can post events, or make a Secret, tries: each attempt is refused or does no harm.

Through the real host over HTTP, around a real hub. What the codec, the kubeconfig and single functions refuse is in
their own tests.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import logging
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest
import yaml
from aiohttp import web

from events import types
from events.broker import Broker
from events.codec import MAX_SIZE
from events.delivery import HttpDelivery
from events.event import Event
from events.journal import Journal, read_journal
from events.triggers import read_triggers
from functions.function import Function, Wake
from functions.host import log
from functions.host.app import make_server
from functions.host.host import MAX_HOPS, Host
from functions.registry import FUNCTIONS
from tests.faults import faulty, status
from tests.served import serving
from tests.support import CLUSTERS, SECRETS, get_cluster, open_world, provide_all, put_cluster, put_kubeconfig, summary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from functions.local.api import Api
    from functions.local.instance import ControlPlane
    from functions.world import World
    from tests.served import Served

MARK = "forged-by-somebody"
ALL = tuple(name for name, each in FUNCTIONS.items() if not each.records)
LOOKING = ("probes/sweep", "probes/cert-manager", "compose/gateway")
CHANGED = {"kind": "CustomResourceDefinition", "name": "certificates.cert-manager.io"}


@pytest.fixture
async def world(hub: ControlPlane) -> AsyncIterator[World]:
    """`gpu-1` may look at its target; `gpu-2` is another tenant's, whose credential may not; `managed` is none of ours.

    All of the first is judged.
    """
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes(), "target")
    put_kubeconfig(hub.api, hub.kubeconfig_for("tenant-2", rules=[]).read_bytes(), "other")
    put_cluster(hub.api)
    put_cluster(hub.api, "gpu-2", secretRef={"name": "other"})
    put_cluster(hub.api, "managed", components="Managed")
    world = await open_world(hub.kubeconfig)
    yield world
    await world.close()


@pytest.fixture
async def served(world: World) -> AsyncIterator[Served]:
    async with serving(world, *ALL) as served:
        yield served


@contextmanager
def unchanged(api: Api, *but: str) -> Iterator[None]:
    """No InferenceCluster and no Secret is made, changed or removed in the meantime, but for these."""

    def everything() -> dict[str, str]:
        found = [each["metadata"] for path in (CLUSTERS, SECRETS) for each in api.request("GET", path).body["items"]]
        return {each["name"]: each["resourceVersion"] for each in found if each["name"] not in but}

    before = everything()
    assert before
    yield
    assert everything() == before


def forged(type_: str, cluster: str, data: Any = None, **extensions: str) -> Event:
    return Event(
        id=MARK,
        source=f"/{MARK}",
        type=type_,
        subject=cluster,
        datacontenttype="application/json",
        extensions={"cluster": cluster, **extensions},
        data=orjson.dumps(data if data is not None else {"reason": MARK}),
    )


def look(function: str, cluster: str, data: Any = None) -> Event:
    """What makes a function look at a cluster."""
    if function == "probes/sweep":
        return forged(types.CHECK_REQUESTED, cluster, data)
    if function.startswith("compose/"):
        return forged(types.REQUIREMENT_MET, cluster, data)
    return forged(types.OBJECT_UPDATED, cluster, data, **CHANGED)


@pytest.mark.parametrize("function", LOOKING)
async def test_a_forged_cluster_that_is_none_reaches_nothing(hub: ControlPlane, served: Served, function: str) -> None:
    names = ("../secrets/target", "gpu-1/status", "gpu-1?x=y", "GPU-1", "gpu-1\n", "gpu 1", "x" * 254, "..", "%2e%2e")
    with unchanged(hub.api):
        for name in names:
            message = {
                "specversion": "1.0",
                "id": "1",
                "source": "/x",
                "type": look(function, "gpu-1").type,
                "cluster": name,
                "data": {"reason": "Tick"},
                **({} if function in {"probes/sweep", "compose/gateway"} else CHANGED),
            }
            said = await served.send(function, {"Content-Type": "application/cloudevents+json"}, orjson.dumps(message))
            assert said.status == 422, name
            assert len(said.text.splitlines()) == 1
        for name in ("nobody", "managed"):
            said = await served.post(function, look(function, name))
            assert (said.status, said.text) == (204, "")


async def test_a_forged_event_makes_a_cluster_be_looked_at_as_itself_and_leaves_nothing(
    hub: ControlPlane, served: Served
) -> None:
    provide_all(hub.api)
    await served.post("probes/sweep", look("probes/sweep", "gpu-1"))
    met = summary(hub.api)
    data = {"reason": MARK, "message": MARK, "outcome": "Met", "status": "True", "generation": 1, "cluster": MARK}
    with unchanged(hub.api, "gpu-2"):
        for function in LOOKING:
            await served.post(function, look(function, "gpu-2", data))
    assert summary(hub.api, "gpu-2") == ("Unknown", "Forbidden"), "with the credential of gpu-2, which may do nothing"
    assert summary(hub.api) == met
    assert MARK not in str(get_cluster(hub.api, "gpu-2"))


@pytest.mark.parametrize(
    "seen", [{"uid": "", "resourceVersion": ""}, {"uid": MARK, "resourceVersion": "999999"}], ids=["absent", "another"]
)
async def test_a_forged_version_of_the_secret_does_not_change_what_is_found(
    hub: ControlPlane, served: Served, seen: dict[str, str]
) -> None:
    await served.post("probes/sweep", look("probes/sweep", "gpu-1"))
    before = get_cluster(hub.api)["status"]
    with unchanged(hub.api):
        said = await served.post("probes/sweep", look("probes/sweep", "gpu-1", {"reason": "Tick", "kubeconfig": seen}))
    assert said.status == 204, said
    assert get_cluster(hub.api)["status"] == before


@pytest.mark.parametrize("function", ["compose/gateway", "compose/queues", "compose/modelexpress"])
async def test_a_forged_deletion_takes_nothing_down(hub: ControlPlane, served: Served, function: str) -> None:
    await served.post(function, look(function, "gpu-1"))
    namespace = hub.api.request("GET", "/api/v1/namespaces/modelplane-system").body["metadata"]
    with unchanged(hub.api):
        await served.post(function, forged(types.DELETING, "gpu-1", {"deletionTimestamp": "2026-12-01T04:00:00Z"}))
    assert hub.api.request("GET", "/api/v1/namespaces/modelplane-system").body["metadata"] == namespace


BODY = b'{"cluster": "gpu-1"}'
DEEP = b"[" * 200_000
BODIES = {
    "open brackets": b'{"cluster": "gpu-1", "x": ' + DEEP,
    "brackets": b'{"cluster": "gpu-1", "x": ' + DEEP + b"]" * 200_000 + b"}",
    "objects": b'{"a":' * 150_000 + b"1" + b"}" * 150_000,
    "a long number": b'{"cluster": ' + b"9" * 500_000 + b"}",
    "many keys": b"{" + b",".join(b'"%d":0' % each for each in range(80_000)) + b"}",
    "no UTF-8": b'{"cluster": "\xff\xfe"}',
    "half a surrogate": b'{"cluster": "\\ud800"}',
}


async def test_bodies_that_are_hard_to_read_are_refused_at_once(hub: ControlPlane, served: Served) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/x", "ce-type": types.PROVISIONED}
    structured = {"Content-Type": "application/cloudevents+json"}
    with unchanged(hub.api):
        for name, body in BODIES.items():
            for sent in (headers | {"Content-Type": "application/json"}, structured):
                begun = monotonic()
                said = await served.send("cluster", sent, body)
                assert (name, said.status) == (name, 422)
                assert len(said.text) <= 256
                assert monotonic() - begun < 5, name


async def test_a_packed_body_is_refused_and_not_unpacked(hub: ControlPlane, served: Served) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/x", "ce-type": types.PROVISIONED}
    headers |= {"Content-Type": "application/json"}
    huge = gzip.compress(bytes(256 * MAX_SIZE), 9)
    with unchanged(hub.api):
        for packed, body in (("gzip", gzip.compress(BODY)), ("gzip", huge), ("deflate", huge), ("x\ty", BODY)):
            said = await served.send("cluster", headers | {"Content-Encoding": packed}, body)
            assert (said.status, "send it as it is" in said.text, said.text.isprintable()) == (422, True, True)
        said = await served.send("cluster", headers | {"Content-Encoding": "identity"}, BODY)
        assert said.status == 200


HEAD = "POST /cluster HTTP/1.1\r\nHost: x\r\nce-specversion: 1.0\r\nce-id: 1\r\nce-source: /x\r\n"
HEAD += f"ce-type: {types.PROVISIONED}\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("ce-subject: a\rX-Injected: y", id="CR"),
        pytest.param("ce-subject: a\n X-Injected: y", id="LF and a space"),
        pytest.param("ce-subject: a\r\n\tX-Injected: y", id="a folded line"),
        pytest.param("ce-subject: a\0b", id="NUL"),
        pytest.param("ce-subject: a%0D%0AX-Injected: y", id="CR LF, encoded"),
        pytest.param("ce-sub ject: a", id="a space in a name"),
        pytest.param("ce-x\x1b[2J: a", id="an escape in a name"),
        pytest.param("ce-cluster: gpu-1\r\nce-cluster: gpu-2", id="an attribute twice"),
        pytest.param("Content-Length: 3", id="two lengths"),
        pytest.param("Transfer-Encoding: chunked", id="a length and chunks"),
        pytest.param(f"ce-x: {'a' * 100_000}", id="a long header"),
    ],
)
async def test_a_header_that_smuggles_is_refused(hub: ControlPlane, served: Served, header: str) -> None:
    port = int(served.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with unchanged(hub.api):
        writer.write(f"{HEAD}{header}\r\nContent-Length: {len(BODY)}\r\nConnection: close\r\n\r\n".encode() + BODY)
        async with asyncio.timeout(10):
            answer = await reader.read()
    writer.close()
    head = answer.partition(b"\r\n\r\n")[0]
    assert head.split()[1] in {b"400", b"422", b"431"}, head
    assert b"\nX-Injected" not in head
    assert answer.count(b"HTTP/1.") == 1, "one request, one answer"


def pointed(hub: ControlPlane, where: str, **changes: Any) -> str:
    content: dict[str, Any] = yaml.safe_load(hub.kubeconfig.read_text())
    content["clusters"][0]["cluster"] |= changes if where == "cluster" else {}
    content["users"][0]["user"] |= changes if where == "user" else {}
    return yaml.safe_dump(content)


FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"
POINTED: list[tuple[str, dict[str, str], str]] = [
    ("cluster", {"server": "https://169.254.169.254"}, "a cloud's metadata service"),
    ("cluster", {"server": "http://169.254.169.254/latest/meta-data"}, "a cloud's metadata service"),
    ("cluster", {"server": "https://[::ffff:a9fe:a9fe]:443"}, "a cloud's metadata service"),
    ("cluster", {"proxy-url": "http://169.254.169.254"}, "a cloud's metadata service"),
    ("cluster", {"server": "file:///etc/passwd"}, "must be a URL"),
    ("cluster", {"certificate-authority": FILE}, "certificate-authority is refused"),
    ("user", {"tokenFile": FILE}, "tokenFile is refused"),
    ("user", {"client-certificate": FILE, "client-key": FILE}, "client-certificate is refused"),
]


async def test_a_kubeconfig_that_points_elsewhere_is_refused_by_name(hub: ControlPlane, served: Served) -> None:
    for where, changes, words in POINTED:
        put_kubeconfig(hub.api, pointed(hub, where, **changes))
        secret = hub.api.request("GET", f"{SECRETS}/target").body["metadata"]
        seen = {"uid": secret["uid"], "resourceVersion": secret["resourceVersion"]}
        data = {"reason": "KubeconfigChanged", "kubeconfig": seen}
        await served.post("probes/sweep", look("probes/sweep", "gpu-1", data))
        condition = next(each for each in get_cluster(hub.api)["status"]["conditions"])
        assert (condition["type"], condition["status"]) == ("RequirementsMet", "Unknown")
        assert (condition["reason"], words in condition["message"]) == ("KubeconfigInvalid", True), condition
        assert FILE not in condition["message"]


@pytest.fixture
def logged() -> Iterator[io.BytesIO]:
    """What the process would write to its log, as JSON."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.BytesIO()
    log.configure("info", io.TextIOWrapper(written, encoding="utf-8", line_buffering=True, write_through=True))
    yield written
    log.configure(stream=io.StringIO())
    root.handlers[:] = handlers
    root.setLevel(level)


NASTY = 'x\n{"level":"critical","message":"injected"}\r\n\x1b[2J\x07\u202e\u2028\x00\x85'


async def test_names_and_messages_cannot_write_lines_of_the_log(
    hub: ControlPlane, served: Served, logged: io.BytesIO
) -> None:
    message = {"specversion": "1.0", "id": "1", "source": "/x", "type": types.PROVISIONED, "data": {"cluster": NASTY}}
    structured = {"Content-Type": "application/cloudevents+json"}
    changes: list[dict[str, Any]] = [{}, {"subject": NASTY}, {"cluster": NASTY}, {"hops": NASTY}, {"type": NASTY}]
    changes += [{"data": {NASTY: 1}}, {"id": "x" * 5000, "subject": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 5000}]
    for change in changes:
        await served.send("cluster", structured, orjson.dumps(message | change))
    await served.send("x%0A%1B[2J", structured, b"{}")
    async with faulty(hub) as target:
        put_kubeconfig(hub.api, target.kubeconfig)
        failure = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": 403,
            "reason": NASTY,
            "message": NASTY,
        }
        target.faults.append(status(403, orjson.dumps(failure).decode()))
        await served.post("probes/sweep", look("probes/sweep", "gpu-1"))
    await asyncio.sleep(0)
    lines = [orjson.loads(line) for line in logged.getvalue().splitlines()]
    assert len(lines) >= len(changes)
    assert not [each for each in lines if each["message"] == "injected" or each["level"] == "critical"]
    assert logged.getvalue().decode().replace("\n", "").isprintable()
    assert max(map(len, logged.getvalue().splitlines())) < 4096
    for condition in get_cluster(hub.api)["status"]["conditions"]:
        assert condition["message"].isprintable(), condition


TRIGGERS = """
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {name: %(name)s, namespace: x}
spec:
  broker: x
  filters:
  - exact: {type: %(wakes)s}
  subscriber: {uri: '%(uri)s'}
  delivery: {retry: 3, backoffPolicy: linear, backoffDelay: PT0S, timeout: PT5S, deadLetterSink: {uri: '%(dead)s'}}
"""


async def test_functions_that_wake_each_other_end_as_a_dead_letter(world: World, tmp_path: Path) -> None:
    called: list[str] = []
    world.journal = Journal(tmp_path / "dead-letters.jsonl")

    def function(name: str, answer: str) -> Function:
        async def handle(event: Event, _world: World) -> Sequence[Event]:
            called.append(event.type)
            return [Event(id=event.id, source="/x", type=answer, extensions={"hops": "0"})]

        return Function(name=name, handler=handle, wakes_on=(Wake(type=name),), emits=(answer,), service="s")

    host = Host([function("ping", "pong"), function("pong", "ping"), FUNCTIONS["dead-letters"]], world)
    runner = web.ServerRunner(make_server(host))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    texts = [
        TRIGGERS % {"name": each, "wakes": each, "uri": f"{url}/{each}", "dead": f"{url}/dead-letters"}
        for each in ("ping", "pong")
    ]
    async with aiohttp.ClientSession() as session:
        broker = Broker(read_triggers("\n---\n".join(texts)), HttpDelivery({}, session))
        await broker.publish(Event(id="1", source="/x", type="ping"))
        async with asyncio.timeout(30):
            await broker.drain()
        await broker.close()
    await runner.cleanup()
    assert called == ["ping", "pong"] * (MAX_HOPS // 2)
    (letter,) = [each.event for each in read_journal(world.journal.path)]
    assert letter is not None
    assert letter.extensions["knativeerrorcode"] == "422"
    assert broker.counts.retried == 0
