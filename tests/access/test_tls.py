from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import os
import ssl
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from functions.access import tls
from functions.access.errors import AccessError, KubeconfigInvalid, Unreachable
from tests.access.serving import (
    DAY,
    Authority,
    Pair,
    answering,
    client_of,
    private,
    read_head,
    serve,
    serve_raw,
    server_context,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CA = Authority()
OTHER = Authority("other")
OLD = Authority("old", bare=True)
MIDDLE = Authority("middle", parent=CA)
SERVER = CA.issue()
JANE = CA.issue("jane.example.com")
JOHN = CA.issue("john.example.com")


@pytest.mark.parametrize(
    ("pair", "fields"),
    [
        pytest.param(SERVER, {"ca": CA.pem}, id="trusted"),
        pytest.param(SERVER, {"ca": b"# a \xc3\xa4 comment\n" + OTHER.pem + b"text\n" + CA.pem}, id="bundle-with-text"),
        pytest.param(OLD.issue(), {"ca": OLD.pem}, id="old-style-authority"),
        pytest.param(MIDDLE.issue(), {"ca": MIDDLE.pem}, id="intermediate-as-anchor"),
        pytest.param(CA.issue("kube"), {"ca": CA.pem, "tls_server_name": "kube"}, id="tls-server-name"),
        pytest.param(OTHER.issue("elsewhere"), {"skip_tls_verify": True}, id="unverified"),
    ],
)
async def test_trusted(pair: Pair, fields: dict[str, Any]) -> None:
    async with serve(answering({"a": 1}), server_context(pair)) as url, client_of(url, **fields) as client:
        assert await client.get("/version") == {"a": 1}


@pytest.mark.parametrize(
    ("pair", "fields", "said"),
    [
        pytest.param(SERVER, {"ca": OTHER.pem}, "not signed by an authority", id="other-authority"),
        pytest.param(SERVER, {}, "not signed by an authority", id="system-authorities"),
        pytest.param(CA.issue(age=3 * DAY), {"ca": CA.pem}, "has expired", id="expired"),
        pytest.param(CA.issue(age=-DAY), {"ca": CA.pem}, "is not valid yet", id="not-yet"),
        pytest.param(CA.issue("10.0.0.1"), {"ca": CA.pem}, "for another IP address", id="other-address"),
        pytest.param(
            CA.issue("a.example.com"),
            {"ca": CA.pem, "tls_server_name": "b.example.com"},
            "for another host name (see tls-server-name)",
            id="other-name",
        ),
    ],
)
async def test_not_trusted(pair: Pair, fields: dict[str, Any], said: str) -> None:
    async with serve(answering({}), server_context(pair)) as url, client_of(url, **fields) as client:
        with pytest.raises(Unreachable) as caught:
            await client.get("/version")
    assert str(caught.value).startswith(f"{url} is not trusted: its TLS certificate")
    assert said in str(caught.value)


async def test_strict_checks_are_off_and_all_others_on() -> None:
    context = tls.trust(CA.pem)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


async def test_a_server_without_tls() -> None:
    async with serve(answering({})) as url, client_of(url.replace("http:", "https:"), ca=CA.pem) as client:
        with pytest.raises(Unreachable, match="does not speak TLS there"):
            await client.get("/version")


async def test_no_common_ground_for_tls() -> None:
    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x28")  # fatal, handshake_failure

    async with serve_raw(alert) as port, client_of(f"https://127.0.0.1:{port}", ca=CA.pem) as client:
        with pytest.raises(Unreachable, match="refused the TLS handshake"):
            await client.get("/version")


@contextlib.asynccontextmanager
async def who_asks(**fields: Any) -> AsyncIterator[tuple[Any, list[str]]]:
    """A client of a server that demands a certificate, and the common names that it has seen."""
    seen: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("ssl_object").getpeercert()
        seen.append(dict(each[0] for each in certificate["subject"])["commonName"])
        return web.json_response({})

    async with (
        serve(handler, server_context(SERVER, clients=CA.pem)) as url,
        client_of(url, ca=CA.pem, **fields) as client,
    ):
        yield client, seen


def as_client(pair: Pair) -> dict[str, bytes]:
    return {"client_certificate": pair.certificate, "client_key": pair.key}


@pytest.mark.parametrize("memfd", [pytest.param(True, id="memfd"), pytest.param(False, id="temporary-file")])
async def test_a_client_certificate_is_presented_and_leaves_no_file(
    *, memfd: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    async with who_asks(**as_client(JANE)) as (client, seen):
        await client.get("/version")
    assert seen == ["jane.example.com"]
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - as the fallback sees it


async def test_a_new_client_certificate_is_presented_from_the_next_request_on() -> None:
    async with who_asks(**as_client(JANE)) as (client, seen):
        await client.get("/version")
        client.set_credentials(dataclasses.replace(client.connection, **as_client(JOHN)))
        await client.get("/version")
    assert seen == ["jane.example.com", "john.example.com"]


@pytest.mark.parametrize(
    "fields",
    [pytest.param({}, id="none"), pytest.param(as_client(OTHER.issue("jane.example.com")), id="of-another-authority")],
)
@pytest.mark.parametrize(
    ("version", "said"),
    [
        # asyncio keeps the alert to itself; with TLS 1.3 it comes after the handshake.
        pytest.param(ssl.TLSVersion.TLSv1_2, "reset the connection", id="tls-1.2"),
        pytest.param(ssl.TLSVersion.TLSv1_3, "closed the connection before its answer was complete", id="tls-1.3"),
    ],
)
async def test_a_client_certificate_that_is_not_accepted(
    fields: dict[str, Any], version: ssl.TLSVersion, said: str
) -> None:
    context = server_context(SERVER, clients=CA.pem)
    context.maximum_version = version
    async with serve(answering({}), context) as url, client_of(url, ca=CA.pem, **fields) as client:
        with pytest.raises(Unreachable, match=said):
            await client.get("/version")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"ca": b"-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----"}, "no usable PEM", id="ca"),
        pytest.param({"ca": b"text"}, "no usable PEM", id="ca-text"),
        pytest.param(as_client(Pair(JANE.certificate, JOHN.key)), "do not belong together", id="mismatch"),
        pytest.param(as_client(Pair(b"text", JOHN.key)), "are not usable PEM", id="certificate-text"),
        pytest.param(
            as_client(Pair(JANE.certificate, private(CA.key, b"passphrase"))), "is encrypted", id="encrypted-key"
        ),
    ],
)
async def test_unusable_pem(fields: dict[str, Any], said: str) -> None:
    async with client_of("https://127.0.0.1:1", **{"ca": CA.pem, **fields}) as client:
        with pytest.raises(KubeconfigInvalid, match=said):
            await client.get("/version")


@contextlib.asynccontextmanager
async def proxy(
    answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n", context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that opens tunnels; gives its address, and the heads of the requests it got."""
    heads: list[str] = []

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_head(reader))
        writer.write(answer)
        if not answer.startswith(b"HTTP/1.1 200"):
            return
        host, _, port = heads[-1].split()[1].rpartition(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))
        finally:
            there_writer.close()

    async with serve_raw(tunnel, context) as port:
        yield f"127.0.0.1:{port}", heads


@pytest.mark.parametrize("secure", [pytest.param(False, id="http"), pytest.param(True, id="https")])
async def test_through_a_proxy(*, secure: bool) -> None:
    context = server_context(SERVER) if secure else None
    async with (
        serve(answering({"a": 1}), server_context(SERVER)) as url,
        proxy(context=context) as (address, heads),
        client_of(url, ca=CA.pem, proxy_url=f"http{'s' if secure else ''}://jane:s%40cret@{address}") as client,
    ):
        assert await client.get("/version") == {"a": 1}
    assert heads[0].startswith(f"CONNECT {url.removeprefix('https://')} ")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'jane:s@cret').decode()}" in heads[0]
    assert "Authorization: Bearer" not in heads[0]


async def test_a_proxy_is_behind_the_tls_server_name_too() -> None:
    async with (
        serve(answering({"a": 1}), server_context(CA.issue("kube"))) as url,
        proxy() as (address, _heads),
        client_of(url, ca=CA.pem, tls_server_name="kube", proxy_url=f"http://{address}") as client,
    ):
        assert await client.get("/version") == {"a": 1}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(
            b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
            "is behind a proxy that answered with 407",
            id="407",
        ),
        pytest.param(
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "is behind a proxy that answered with 403", id="403"
        ),
    ],
)
async def test_a_proxy_that_refuses(answer: bytes, said: str) -> None:
    async with proxy(answer) as (address, _heads):
        proxy_url = f"http://jane:secret@{address}"
        async with client_of("https://host.example:6443", ca=CA.pem, proxy_url=proxy_url) as client:
            with pytest.raises(Unreachable) as caught:
                await client.get("/version")
    assert str(caught.value) == f"https://host.example:6443 {said}"


async def test_a_proxy_that_is_not_there() -> None:
    async with proxy() as (address, _heads):
        pass
    async with client_of("https://host.example", ca=CA.pem, proxy_url=f"http://jane:secret@{address}") as client:
        with pytest.raises(AccessError) as caught:
            await client.get("/version")
    assert str(caught.value) == "https://host.example is behind a proxy that refused the connection"
