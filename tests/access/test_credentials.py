from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from functions.access import exec_helper
from functions.access.client import Client
from functions.access.connection import ExecHelper, Oidc
from functions.access.credentials import obtain, renewal
from functions.access.errors import KubeconfigInvalid, Unauthorized, Unreachable
from functions.access.lean_import import lean_import
from tests.access.serving import (
    Authority,
    answering,
    client_of,
    connection,
    script,
    serve,
    serve_raw,
    server_context,
    silent,
    status,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

V1 = "client.authentication.k8s.io/v1"
NOW = 1_800_000_000.0
CA = Authority()


def printed(**fields: Any) -> str:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": fields})


def helper(directory: Path, body: str, **fields: Any) -> ExecHelper:
    return ExecHelper(api_version=V1, command=script(directory, body), **fields)


@contextlib.asynccontextmanager
async def gatekeeper(*accepted: str) -> AsyncIterator[tuple[str, list[str | None]]]:
    """A server that lets these credentials in, and what it was shown."""
    shown: list[str | None] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        shown.append(request.headers.get("Authorization"))
        if shown[-1] in accepted:
            return web.json_response({})
        return web.json_response(status(401, "Unauthorized", "Unauthorized"), status=401)

    async with serve(handler) as url:
        yield url, shown


async def test_a_helper_gives_a_token(tmp_path: Path) -> None:
    async with gatekeeper("Bearer abc") as (url, shown):
        program = helper(tmp_path, f"echo '{printed(token='abc')}'")
        async with client_of(url, helper=program) as client:
            await asyncio.gather(client.get("/a"), client.get("/b"))
    assert shown == ["Bearer abc"] * 2


async def test_a_helper_gives_a_client_certificate(tmp_path: Path) -> None:
    pair = CA.issue("jane.example.com")
    said = printed(clientCertificateData=pair.certificate.decode(), clientKeyData=pair.key.decode())
    (tmp_path / "said").write_text(said)
    program = helper(tmp_path, f"cat {tmp_path}/said")
    context = server_context(CA.issue(), clients=CA.pem)
    async with serve(answering({"a": 1}), context) as url, client_of(url, ca=CA.pem, helper=program) as client:
        assert await client.get("/version") == {"a": 1}


async def test_what_a_helper_is_told(tmp_path: Path) -> None:
    program = helper(
        tmp_path,
        f'echo "$1 $A" > {tmp_path}/told; echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n'
        f"echo '{printed(token='abc')}'",
        args=("get-token",),
        env=(("A", "b"),),
        cluster={"server": "https://host"},
        interactive_mode="Never",
    )
    await exec_helper.run(program, timeout=10)
    assert (tmp_path / "told").read_text() == "get-token b\n"
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://host"}},
    }


SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(f"echo {SECRET} >&2; exit 3", "ended with exit code 3", id="fails"),
        pytest.param(f"echo {SECRET}", "does not print JSON", id="text"),
        pytest.param("echo '[]'", "does not print an ExecCredential", id="list"),
        pytest.param('echo \'{"kind": "ExecCredential", "apiVersion": "v9"}\'', f"does not speak {V1}", id="version"),
        pytest.param(
            f"echo '{json.dumps({'apiVersion': V1, 'kind': 'ExecCredential'})}'", "without status", id="status"
        ),
        pytest.param(f"echo '{printed()}'", "neither a token nor a client certificate", id="empty"),
        pytest.param(f"echo '{printed(token=1)}'", "status.token that is not a string", id="number"),
        pytest.param(f"echo '{printed(clientKeyData=SECRET)}'", "without the other", id="key-alone"),
        pytest.param(
            f"echo '{printed(token=SECRET, expirationTimestamp='soon')}'", "is not RFC 3339", id="expiry-text"
        ),
        pytest.param(
            f"echo '{printed(token=SECRET, expirationTimestamp='2026-12-01T04:00:00')}'", "RFC 3339", id="expiry-local"
        ),
        pytest.param("head -c 2000000 /dev/zero", "prints more than 1 MiB", id="endless"),
    ],
)
async def test_a_helper_that_gives_nothing(body: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(KubeconfigInvalid) as caught:
        await exec_helper.run(helper(tmp_path, body), timeout=10)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_much_on_standard_error_does_not_block(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = helper(tmp_path, f"head -c 200000 /dev/zero | tr '\\0' x >&2; echo '{printed(token='abc')}'")
    assert (await exec_helper.run(program, timeout=10)).token == "abc"
    assert len(capfd.readouterr().err) == 200_000, "the person sees it"


async def test_a_helper_that_is_not_installed() -> None:
    program = ExecHelper(api_version=V1, command="no-such-helper", install_hint="run: brew install it\n")
    with pytest.raises(KubeconfigInvalid) as caught:
        await exec_helper.run(program, timeout=10)
    assert str(caught.value) == (
        "the credential helper no-such-helper cannot be run: No such file or directory; run: brew install it"
    )


async def test_a_helper_that_must_ask_needs_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(KubeconfigInvalid, match="wants to ask at a terminal"):
        await exec_helper.run(helper(tmp_path, "exit 0", interactive_mode="Always"), timeout=10)


async def test_a_helper_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    program = helper(tmp_path, f"exec 3>{tmp_path}/alive; echo up >&3; sleep 600 & sleep 600")
    run = asyncio.create_task(exec_helper.run(program, timeout=1))
    said = await asyncio.to_thread((tmp_path / "alive").read_bytes)  # ends when no process has it open any more
    assert said == b"up\n"
    with pytest.raises(KubeconfigInvalid, match="did not finish within 1 s"):
        await run


async def test_a_cancelled_helper_is_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    program = helper(tmp_path, f"exec 3>{tmp_path}/alive; echo up >&3; sleep 600")
    run = asyncio.create_task(exec_helper.run(program, timeout=600))
    with await asyncio.to_thread((tmp_path / "alive").open, "rb") as opened:
        assert await asyncio.to_thread(opened.readline) == b"up\n"
        run.cancel()
        assert await asyncio.to_thread(opened.read) == b""
    with pytest.raises(asyncio.CancelledError):
        await run


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def counting(directory: Path, expires: str | None = None) -> ExecHelper:
    """Gives the tokens t1, t2, … in turn."""
    fields = {"token": "t'$n'", **({"expirationTimestamp": expires} if expires else {})}
    return helper(
        directory,
        f"echo x >> {directory}/runs; n=$(wc -l < {directory}/runs | tr -d ' '); echo '{printed(**fields)}'",
    )


async def test_a_helper_runs_again_shortly_before_its_credential_expires(tmp_path: Path) -> None:
    clock = Clock()
    expiry = "2027-01-15T08:10:00Z"  # NOW is ten minutes before
    async with (
        gatekeeper("Bearer t1", "Bearer t2") as (url, shown),
        client_of(url, helper=counting(tmp_path, expiry), settings={"clock": clock}) as client,
    ):
        await client.get("/a")
        clock.now += 539
        await client.get("/b")
        clock.now += 2
        await client.get("/c")
    assert shown == ["Bearer t1", "Bearer t1", "Bearer t2"]


async def test_a_helper_runs_again_once_when_its_credential_is_refused(tmp_path: Path) -> None:
    async with gatekeeper("Bearer t2") as (url, shown), client_of(url, helper=counting(tmp_path)) as client:
        await client.get("/a")
    assert shown == ["Bearer t1", "Bearer t2"]


async def test_refused_twice_is_unauthorized(tmp_path: Path) -> None:
    async with gatekeeper() as (url, shown), client_of(url, helper=counting(tmp_path)) as client:
        with pytest.raises(Unauthorized, match="expired or wrong"):
            await client.get("/a")
    assert shown == ["Bearer t1", "Bearer t2"]


async def test_a_token_that_is_fixed_is_not_tried_twice() -> None:
    async with gatekeeper() as (url, shown), client_of(url, token="abc") as client:
        with pytest.raises(Unauthorized):
            await client.get("/a")
    assert shown == ["Bearer abc"]


@pytest.mark.parametrize(
    ("expiry", "expected"),
    [
        pytest.param(float("inf"), float("inf"), id="never"),
        pytest.param(NOW + 6000, NOW + 5940, id="a-minute-before"),
        pytest.param(NOW + 100, NOW + 90, id="a-tenth-before"),
        pytest.param(NOW - 100, NOW - 100, id="expired"),
    ],
)
def test_when_to_renew(expiry: float, expected: float) -> None:
    assert renewal(expiry, NOW) == expected


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "token"
    file.write_text("t1\n")
    async with (
        gatekeeper("Bearer t1", "Bearer t2") as (url, shown),
        client_of(url, token_file=file, token="unused", settings={"clock": clock}) as client,
    ):
        await client.get("/a")
        file.write_text("t2")
        clock.now += 59
        await client.get("/b")
        clock.now += 2
        await client.get("/c")
    assert shown == ["Bearer t1", "Bearer t1", "Bearer t2"]


async def test_a_token_file_is_read_at_once_when_its_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("t1")
    async with gatekeeper("Bearer t2") as (url, shown), client_of(url, token_file=file) as client:
        with pytest.raises(Unauthorized):
            await client.get("/a")
        shown.clear()
        file.write_text("t2")
        await client.get("/b")
    assert shown == ["Bearer t1", "Bearer t2"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, "cannot be read: No such file or directory", id="missing"),
        pytest.param(b" \n", "holds no token", id="empty"),
        pytest.param(b"a\nb", "holds no token", id="two-lines"),
        pytest.param(b"\xff", "holds no token", id="bytes"),
    ],
)
async def test_a_token_file_without_a_token(content: bytes | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(KubeconfigInvalid, match=said):
        await obtain(connection("https://host", token_file=tmp_path / "token"), now=NOW)


async def test_a_swap_during_a_renewal_wins(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    slow = helper(tmp_path, f"cat {tmp_path}/go; echo '{printed(token='old')}'")
    async with gatekeeper("Bearer new") as (url, shown), client_of(url, helper=slow) as client:
        asked = asyncio.create_task(client.get("/a"))
        opened = await asyncio.to_thread((tmp_path / "go").open, "wb")  # the helper is at work
        client.set_credentials(connection(url, token="new"))
        opened.close()
        await asked
    assert shown == ["Bearer new"]


def jwt(expiry: float, name: str = "jane") -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry, "sub": name}).encode()).decode().rstrip("=")
    return f"e30.{claims}.sig"


@contextlib.asynccontextmanager
async def issuer(answer: dict[str, Any] | None) -> AsyncIterator[tuple[str, list[Any]]]:
    """An OpenID Connect issuer that answers a refresh so, or refuses it; and what it was sent."""
    sent: list[Any] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/.well-known/openid-configuration":
            return web.json_response({"token_endpoint": f"https://{request.host}/token"})
        sent.append((request.headers.get("Authorization"), dict(await request.post())))
        if answer is None:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response(answer)

    async with serve(handler, server_context(CA.issue())) as url:
        yield url, sent


def login(url: str, file: Path, **fields: Any) -> Oidc:
    return Oidc(
        **{
            "issuer_url": url,
            "client_id": "cli",
            "client_secret": "shh",
            "id_token": jwt(NOW - 1),
            "refresh_token": "refresh-1",
            "ca": CA.pem,
            "file": file,
            **fields,
        }
    )


async def test_a_login_that_is_good_is_used_as_it_is(tmp_path: Path) -> None:
    there = connection("https://host", oidc=login("https://127.0.0.1:1", tmp_path, id_token=jwt(NOW + 600)))
    credential = await obtain(there, now=NOW)
    assert credential.authorization == f"Bearer {jwt(NOW + 600)}"
    assert credential.expires == NOW + 540


async def test_a_login_is_refreshed_and_a_rotated_token_kept(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(b"# mine\r\nrefresh-token: refresh-1\r\n")
    file.chmod(0o600)
    (tmp_path / "link").symlink_to(file)
    answer = {"id_token": jwt(NOW + 600), "refresh_token": "refresh-2"}
    async with issuer(answer) as (url, sent):
        oidc = login(url, tmp_path / "link")
        for _ in range(2):
            credential = await obtain(connection("https://host", oidc=oidc), now=NOW)
            assert credential.authorization == f"Bearer {jwt(NOW + 600)}"
    basic = f"Basic {base64.b64encode(b'cli:shh').decode()}"
    assert sent == [
        (basic, {"grant_type": "refresh_token", "refresh_token": "refresh-1"}),
        (basic, {"grant_type": "refresh_token", "refresh_token": "refresh-2"}),
    ]
    assert file.read_bytes() == b"# mine\r\nrefresh-token: refresh-2\r\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["config", "link"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("fields", "answer", "kind", "said"),
    [
        pytest.param({"refresh_token": ""}, {}, KubeconfigInvalid, "log in again", id="no-refresh-token"),
        pytest.param({"id_token": SECRET}, {}, KubeconfigInvalid, "is no JWT", id="not-a-jwt"),
        pytest.param({}, None, KubeconfigInvalid, "refused the refresh-token; log in again", id="refused"),
        pytest.param({}, {"access_token": SECRET}, KubeconfigInvalid, "gave no id_token", id="no-id-token"),
        pytest.param({"ca": Authority().pem}, {}, Unreachable, "cannot be asked", id="issuer-not-trusted"),
        pytest.param({"ca": None}, {}, Unreachable, "cannot be asked", id="issuer-not-of-the-system"),
    ],
)
async def test_a_login_that_has_ended(
    fields: dict[str, Any], answer: dict[str, Any] | None, kind: type[Exception], said: str, tmp_path: Path
) -> None:
    async with issuer(answer) as (url, _sent):
        with pytest.raises(kind, match=said) as caught:
            await obtain(connection("https://host", oidc=login(url, tmp_path, **fields)), now=NOW)
    assert SECRET not in str(caught.value)


async def test_an_issuer_that_hangs(tmp_path: Path) -> None:
    async with serve_raw(silent) as port:
        there = connection("https://host", oidc=login(f"https://127.0.0.1:{port}", tmp_path))
        with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s"):
            await obtain(there, now=NOW, timeout=0.1)


def loaded_after(code: str) -> set[str]:
    """The modules of kubernetes_asyncio that a fresh interpreter has after running that."""
    report = "import sys; print('\\n'.join(each for each in sys.modules if each.startswith('kubernetes_asyncio')))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_nothing_of_kubernetes_asyncio_is_loaded_unless_it_is_used() -> None:
    assert loaded_after("import functions.access.client, functions.access.kubeconfig, functions.access.oidc") == set()


def test_a_lean_import_leaves_the_generated_models_out_and_nothing_behind() -> None:
    code = (
        "import sys\n"
        "from functions.access.lean_import import lean_import\n"
        "seen = set()\n"
        "class Spy:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        seen.add(name)\n"
        "sys.meta_path.insert(0, Spy())\n"
        "module = lean_import('kubernetes_asyncio.config.openid')\n"
        "assert module.OpenIDRequestor\n"
        "assert 'kubernetes_asyncio.config.config_exception' in seen\n"
        "assert not any(each.startswith('kubernetes_asyncio.client') for each in seen), seen\n"
    )
    assert loaded_after(code) == set()


def test_the_whole_package_can_be_imported_after_a_lean_import() -> None:
    code = (
        "from functions.access.lean_import import lean_import\n"
        "lean_import('kubernetes_asyncio.config.openid')\n"
        "import kubernetes_asyncio\n"
        "assert kubernetes_asyncio.config.load_kube_config and kubernetes_asyncio.client.CoreV1Api\n"
        "assert lean_import('kubernetes_asyncio.config.openid') is kubernetes_asyncio.config.openid\n"
    )
    assert "kubernetes_asyncio.client.models" in loaded_after(code)


@pytest.mark.parametrize(
    "name", ["kubernetes_asyncio.config.gone", "kubernetes_asyncio.gone.openid", "no_such_package_here.config.openid"]
)
def test_a_changed_layout_is_named(name: str) -> None:
    with pytest.raises(ImportError, match=f"has no usable module {name} in the installed version"):
        lean_import(name)


def test_a_credential_shows_no_secret() -> None:
    made = connection("https://host", token=SECRET, password=SECRET, username="jane")
    assert SECRET not in repr(Client(made).connection)
    assert SECRET not in repr(dataclasses.replace(made, username=None))
