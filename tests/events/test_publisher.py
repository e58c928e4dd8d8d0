"""The publisher against a real sink: what arrives, what is tried again, and what an error says and does not say."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from events import publisher as publisher_module
from events.codec import Malformed, decode
from events.event import Event
from events.publisher import TRIES, NoSink, NotAccepted, Publisher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    Serve: TypeAlias = "Callable[..., Awaitable[str]]"

MET = Event(id="1", source="/probe", type="requirement.met", datacontenttype="application/json", data=b"{}")


class Sleeper:
    """Keeps what is waited and does not wait it."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(round(seconds, 3))


@dataclass
class Sink:
    """Answers by a script, of which the last entry repeats."""

    script: list[tuple[int, dict[str, str]]] = field(default_factory=lambda: [(202, {})])
    arrived: list[Event] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        self.arrived.append(decode(request.headers, await request.read()))
        self.headers.append(dict(request.headers))
        status, headers = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return web.Response(status=status, headers=headers)


@dataclass
class Slow(Sink):
    """Answers no two batches of requests within `seconds`."""

    seconds: float = 0.0

    async def handle(self, request: web.Request) -> web.Response:
        response = await super().handle(request)
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(self.seconds, done.set_result, None)
        await done
        return response


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(sink: Sink, tls: ssl.SSLContext | None = None) -> str:
            app = web.Application()
            app.router.add_post("/{path:.*}", sink.handle)
            server = TestServer(app, host="127.0.0.1", scheme="https" if tls else "http")
            await server.start_server(ssl=tls)
            stack.push_async_callback(server.close)
            return str(server.make_url("/broker"))

        yield start


async def test_the_token_is_shown_as_it_is_when_an_event_is_sent(serve: Serve, tmp_path: Path) -> None:
    sink, file = Sink(), tmp_path / "token"
    async with Publisher(await serve(sink), token_file=file, sleep=Sleeper()) as publisher:
        for token in ("first", "renewed"):
            file.write_text(f"{token}\n")
            await publisher.publish([MET])
    assert [each["Authorization"] for each in sink.headers] == ["Bearer first", "Bearer renewed"]


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff"], ids=["no file", "empty", "lines", "bytes"])
async def test_without_the_token_nothing_is_sent(serve: Serve, tmp_path: Path, content: bytes | None) -> None:
    sink, file, sleep = Sink(), tmp_path / "token", Sleeper()
    if content is not None:
        file.write_bytes(content)
    async with Publisher(await serve(sink), token_file=file, sleep=sleep) as publisher:
        with pytest.raises(NotAccepted, match="no token in") as error:
            await publisher.publish([MET])
    assert "lines" not in str(error.value).replace(str(file), "")
    assert (sink.headers, len(sleep.waits)) == ([], TRIES - 1), "it may only be on its way"


@pytest.mark.parametrize("bound", [True, False])
async def test_the_token_of_a_sink_binding_is_found(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, bound: bool
) -> None:
    sink, file = Sink(), tmp_path / "token"
    monkeypatch.setattr(publisher_module, "TOKEN_FILE", file)
    if bound:
        file.write_text("bound")
    async with Publisher.from_environment({"K_SINK": await serve(sink)}) as publisher:
        await publisher.publish([MET])
    assert sink.headers[0].get("Authorization") == ("Bearer bound" if bound else None)


async def test_events_arrive_with_the_overrides(serve: Serve) -> None:
    sink = Sink()
    environ = {
        "K_SINK": await serve(sink),
        "K_CE_OVERRIDES": '{"extensions": {"cluster": "gpu-1"}}',
    }
    async with Publisher.from_environment(environ) as publisher:
        await publisher.publish([replace(MET, extensions={"cluster": "x", "hops": "1"}), replace(MET, id="2")])
    assert sorted(sink.arrived, key=lambda event: event.id) == [
        replace(MET, extensions={"cluster": "gpu-1", "hops": "1"}),
        replace(MET, id="2", extensions={"cluster": "gpu-1"}),
    ]


async def test_data_without_a_content_type_gets_none(serve: Serve) -> None:
    sink = Sink()
    async with Publisher(await serve(sink)) as publisher:
        await publisher.publish([replace(MET, datacontenttype=None)])
    assert "Content-Type" not in sink.headers[0]


async def test_nothing_to_publish_needs_no_sink() -> None:
    async with Publisher(f"http://127.0.0.1:{unused_port()}/") as publisher:
        await publisher.publish([])


@pytest.mark.parametrize("status", [404, 408, 425, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_again(serve: Serve, status: int) -> None:
    sink, sleep = Sink([(status, {}), (status, {}), (202, {})]), Sleeper()
    async with Publisher(await serve(sink), sleep=sleep) as publisher:
        await publisher.publish([MET])
    assert sink.arrived == [MET, MET, MET]
    assert sleep.waits == [0.1, 0.2]


@pytest.mark.parametrize("status", [302, 400, 401, 403, 409, 413])
async def test_what_cannot_pass_is_not(serve: Serve, status: int) -> None:
    sink, sleep = Sink([(status, {"Location": "/elsewhere"})]), Sleeper()
    url = await serve(sink)
    async with Publisher(url.replace("//", "//me:hunter2@") + "?key=hunter2", sleep=sleep) as publisher:
        with pytest.raises(NotAccepted) as refusal:
            await publisher.publish([MET])
    assert len(sink.arrived) == 1
    assert refusal.value.status == status
    host = re.sub(r"http://([^/]+)/.*", r"\1", url)
    assert str(refusal.value) == f"sink {host} did not accept event 1 of type requirement.met: status {status}"


async def test_trying_ends(serve: Serve) -> None:
    sink, sleep = Sink([(503, {})]), Sleeper()
    async with Publisher(await serve(sink), sleep=sleep) as publisher:
        with pytest.raises(NotAccepted, match="status 503"):
            await publisher.publish([MET])
    assert len(sink.arrived) == TRIES
    assert sleep.waits == [0.1, 0.2, 0.4, 0.8, 1.6]


async def test_retry_after_is_honoured(serve: Serve) -> None:
    sink, sleep = Sink([(429, {"Retry-After": "3"}), (202, {})]), Sleeper()
    async with Publisher(await serve(sink), sleep=sleep) as publisher:
        await publisher.publish([MET])
    assert sleep.waits == [3]


async def test_a_retry_after_beyond_the_budget_is_handed_on(serve: Serve) -> None:
    sink, sleep = Sink([(503, {"Retry-After": "120"})]), Sleeper()
    async with Publisher(await serve(sink), sleep=sleep) as publisher:
        with pytest.raises(NotAccepted) as refusal:
            await publisher.publish([MET])
    assert (refusal.value.retry_after, sleep.waits, len(sink.arrived)) == (120, [], 1)


async def test_one_that_is_refused_keeps_no_other_from_being_sent(serve: Serve) -> None:
    sink = Sink()
    async with Publisher(await serve(sink)) as publisher:
        with pytest.raises(Malformed, match="attribute subject"):
            await publisher.publish([replace(MET, subject=""), MET])
    assert sink.arrived == [MET]


async def test_nobody_there_is_named_without_credentials() -> None:
    port, sleep = unused_port(), Sleeper()
    async with Publisher(f"http://me:hunter2@127.0.0.1:{port}/?key=hunter2", sleep=sleep) as publisher:
        with pytest.raises(NotAccepted) as refusal:
            await publisher.publish([MET])
    assert str(refusal.value).startswith(
        f"sink 127.0.0.1:{port} did not accept event 1 of type requirement.met: no answer"
    )
    assert "hunter2" not in str(refusal.value)
    assert (refusal.value.status, refusal.value.__cause__, len(sleep.waits)) == (None, None, TRIES - 1)


async def test_a_sink_that_hangs_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "REQUEST_TIMEOUT", 0.02)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Publisher(f"http://me:hunter2@127.0.0.1:{port}/", sleep=Sleeper()) as publisher:
            with pytest.raises(NotAccepted, match="no answer") as refusal:
                await publisher.publish([MET])
    assert "hunter2" not in str(refusal.value)


async def test_many_events_wait_for_their_turn_as_long_as_it_takes(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each request takes a large part of its own limit, and all together many times that limit and the budget.
    monkeypatch.setattr(publisher_module, "REQUEST_TIMEOUT", 0.5)
    monkeypatch.setattr(publisher_module, "BUDGET", 0.5)
    sink = Slow(seconds=0.1)
    async with Publisher(await serve(sink), sleep=Sleeper()) as publisher:
        await publisher.publish([replace(MET, id=str(number)) for number in range(16 * 8)])
    assert sorted(int(event.id) for event in sink.arrived) == list(range(16 * 8))


async def test_a_closed_publisher_can_publish_again(serve: Serve) -> None:
    sink = Sink()
    publisher = Publisher(await serve(sink))
    await publisher.close()
    for _ in range(2):
        await publisher.publish([MET])
        await publisher.close()
    assert sink.arrived == [MET, MET]


def certificate(
    name: str, key: EllipticCurvePrivateKey, issuer: str, issuer_key: EllipticCurvePrivateKey, *, ca: bool
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    )
    if ca:
        usage = dict.fromkeys(
            [
                "digital_signature",
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ],
            False,
        )
        builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
    return builder.sign(issuer_key, hashes.SHA256())


@pytest.fixture
def pki(tmp_path: Path) -> tuple[str, ssl.SSLContext]:
    """The PEM of a CA, and the TLS set-up of a server that it signed."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = certificate("ca", ca_key, "ca", ca_key, ca=True)
    signed = certificate("sink", key, "ca", ca_key, ca=False)
    pem = tmp_path / "server.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return ca.public_bytes(serialization.Encoding.PEM).decode(), context


async def test_k_ca_certs_are_trusted(serve: Serve, pki: tuple[str, ssl.SSLContext]) -> None:
    sink = Sink()
    ca, tls = pki
    async with Publisher.from_environment({"K_SINK": await serve(sink, tls), "K_CA_CERTS": f"# é\n{ca}"}) as publisher:
        await publisher.publish([MET])
    assert sink.arrived == [MET]


async def test_without_them_the_certificate_is_refused_and_the_error_says_so(
    serve: Serve, pki: tuple[str, ssl.SSLContext]
) -> None:
    sink = Sink()
    async with Publisher(await serve(sink, pki[1]), sleep=Sleeper()) as publisher:
        with pytest.raises(NotAccepted, match="certificate verify failed"):
            await publisher.publish([MET])
    assert sink.arrived == []


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        pytest.param({}, "K_SINK is not set; set it to", id="nothing"),
        pytest.param({"K_SINK": ""}, "K_SINK is not set", id="empty"),
        pytest.param({"K_SINK": "hunter2"}, "K_SINK is not an http(s) URL", id="no URL"),
        pytest.param({"K_SINK": "ftp://hunter2/"}, "K_SINK is not an http(s) URL", id="other scheme"),
        pytest.param({"K_SINK": "http://h:hunter2/"}, "K_SINK is not an http(s) URL", id="port"),
        pytest.param({"K_SINK": "http://[hunter2/"}, "K_SINK is not an http(s) URL", id="bracket"),
        pytest.param({"K_SINK": "http:///hunter2"}, "K_SINK is not an http(s) URL", id="no host"),
        pytest.param({"K_SINK": "http://s/", "K_CE_OVERRIDES": "hunter2"}, "K_CE_OVERRIDES must be JSON", id="no JSON"),
        pytest.param({"K_SINK": "http://s/", "K_CE_OVERRIDES": "[]"}, "K_CE_OVERRIDES must be JSON", id="a list"),
        pytest.param(
            {"K_SINK": "http://s/", "K_CE_OVERRIDES": '{"extensions": ["hunter2"]}'},
            "K_CE_OVERRIDES must be JSON",
            id="extensions a list",
        ),
        pytest.param(
            {"K_SINK": "http://s/", "K_CE_OVERRIDES": '{"extensions": {"A": "hunter2"}}'}, "extension 'A'", id="name"
        ),
        pytest.param(
            {"K_SINK": "http://s/", "K_CE_OVERRIDES": '{"extensions": {"a": 1}}'}, "extension 'a'", id="number"
        ),
        pytest.param({"K_SINK": "https://s/", "K_CA_CERTS": "hunter2"}, "K_CA_CERTS holds no PEM", id="no PEM"),
        pytest.param(
            {"K_SINK": "https://s/", "K_CA_CERTS": "-----BEGIN CERTIFICATE-----\né\n"}, "K_CA_CERTS holds", id="bad PEM"
        ),
    ],
)
def test_an_environment_that_is_wrong_says_what_to_set(environ: dict[str, str], says: str) -> None:
    with pytest.raises(NoSink) as refusal:
        Publisher.from_environment(environ)
    assert says in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("overrides", ["", " ", "{}", '{"extensions": null}', '{"extensions": {}}'])
async def test_empty_overrides_are_none(serve: Serve, overrides: str) -> None:
    sink = Sink()
    environ = {"K_SINK": await serve(sink), "K_CE_OVERRIDES": overrides, "K_CA_CERTS": ""}
    async with Publisher.from_environment(environ) as publisher:
        await publisher.publish([MET])
    assert sink.arrived == [MET]
