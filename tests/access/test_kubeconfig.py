from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import yaml

from functions.access.connection import Connection
from functions.access.errors import KubeconfigInvalid
from functions.access.kubeconfig import SECRET_LIMIT, from_files, from_secret, load_file
from tests.access.serving import Authority

if TYPE_CHECKING:
    from pathlib import Path

CA = Authority().pem
CA64 = base64.b64encode(CA).decode()
WRAPPED = base64.encodebytes(CA).decode()  # lines of 76
SECRET = "c2VjcmV0LXZhbHVl"  # what no message may show
ODD_HOSTS = ("a..b", ".x", "a" * 64, "a." * 127 + "a", "a\\b", "%61", "a;b", "*", "xn--\u0301")
Fields: TypeAlias = "dict[str, Any] | None"


def document(cluster: Fields = None, user: Fields = None, current: Any = "ctx", **top: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": {} if user is None else user}],
        "contexts": [{"name": "ctx", "context": {"cluster": "c", "user": "u"}}],
        "current-context": current,
        **top,
    }


def text(cluster: Fields = None, user: Fields = None, current: Any = "ctx", **top: Any) -> bytes:
    return yaml.safe_dump(document(cluster, user, current, **top)).encode()


def as_json(cluster: Fields = None, user: Fields = None, current: Any = "ctx") -> bytes:
    """For values of other types: in YAML what looks like a number is taken as the text that it is."""
    return json.dumps(document(cluster, user, current)).encode()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(text(), {"server": "https://host:6443", "ca": None}, id="plain"),
        pytest.param(json.dumps(document(), indent="\t").encode(), {"server": "https://host:6443"}, id="json-tabs"),
        pytest.param(b"\xef\xbb\xbf" + text(), {"context": "ctx"}, id="bom"),
        pytest.param(b"\xef\xbb\xbf" + json.dumps(document()).encode(), {"context": "ctx"}, id="bom-json"),
        pytest.param(text().replace(b"\n", b"\r\n"), {"server": "https://host:6443"}, id="crlf"),
        pytest.param(text({"certificate-authority-data": CA64}), {"ca": CA}, id="ca"),
        pytest.param(text({"certificate-authority-data": WRAPPED}), {"ca": CA}, id="ca-wrapped"),
        pytest.param(text(user={"token": "abc\n"}), {"token": "abc"}, id="token-newline"),
        pytest.param(text(user={"token": 12}), {"token": "12"}, id="token-of-digits"),
        pytest.param(
            text().replace(b"user: {}", b"user: {token: 1:59}"), {"token": "1:59"}, id="token-like-a-number-to-base-60"
        ),
        pytest.param(text(user={"username": "a", "password": "b"}), {"username": "a", "password": "b"}, id="basic"),
        pytest.param(
            text(user={"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}),
            {"client_certificate": b"cert", "client_key": b"key"},
            id="certificate",
        ),
        pytest.param(
            text({"server": "https://host/k8s/clusters/c-1/"}), {"server": "https://host/k8s/clusters/c-1"}, id="prefix"
        ),
        pytest.param(text({"server": "https://[::1]:6443//"}), {"server": "https://[::1]:6443"}, id="ipv6-slashes"),
        pytest.param(text({"tls-server-name": "kube"}), {"tls_server_name": "kube"}, id="tls-server-name"),
        pytest.param(text({"tls-server-name": "10.0.0.1"}), {"tls_server_name": "10.0.0.1"}, id="tls-server-address"),
        pytest.param(
            text({"server": f"https://{'a' * 63}.b_c."}),
            {"server": f"https://{'a' * 63}.b_c."},
            id="odd-but-usable-host",
        ),
        pytest.param(
            text({"proxy-url": "http://a:%C3%A4%3A@p"}), {"proxy_url": "http://a:%C3%A4%3A@p"}, id="proxy-login"
        ),
        pytest.param(text({"proxy-url": "http://p:3128"}), {"proxy_url": "http://p:3128"}, id="proxy-http"),
        pytest.param(text({"proxy-url": "https://a:b@p"}), {"proxy_url": "https://a:b@p"}, id="proxy-https"),
        pytest.param(text({"disable-compression": True}), {"compression": False}, id="no-compression"),
        pytest.param(text({"insecure-skip-tls-verify": False}), {"skip_tls_verify": False}, id="verify"),
        pytest.param(
            text(user={"as": "a", "as-uid": "1", "as-groups": ["g", "h"], "as-user-extra": {"Some/Key": ["x"]}}),
            {
                "impersonate": (
                    ("Impersonate-User", "a"),
                    ("Impersonate-Group", "g"),
                    ("Impersonate-Group", "h"),
                    ("Impersonate-Uid", "1"),
                    ("Impersonate-Extra-some%2Fkey", "x"),
                )
            },
            id="impersonation",
        ),
        pytest.param(text(user={}), {"token": None, "username": None}, id="empty-user"),
        pytest.param(text(users=[{"name": "u", "user": None}]), {"token": None}, id="null-user"),
        pytest.param(
            text(users=None, contexts=[{"name": "ctx", "context": {"cluster": "c"}}]), {"token": None}, id="no-user"
        ),
        pytest.param(
            text(users=[{"name": "u", "user": {}}, {"name": "other", "user": {"exec": {}}}]),
            {"helper": None},
            id="exec-of-another-user",
        ),
        pytest.param(
            b"x: &a {server: 'https://h:1'}\nclusters: [{name: c, cluster: *a}]\n"
            b"contexts: [{name: k, context: {cluster: c}}]\ncurrent-context: k\n",
            {"server": "https://h:1"},
            id="alias",
        ),
    ],
)
def test_accepted_from_a_secret(data: bytes, expected: dict[str, Any]) -> None:
    made = from_secret(data)
    assert {name: getattr(made, name) for name in expected} == expected


METADATA = [
    "169.254.169.254",
    "169.254.170.2:6443",
    "2852039166",
    "0xa9fea9fe",
    "169.254.43518",
    "[fe80::a9fe:a9fe]",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "168.63.129.16",
]
REFUSED = [
    pytest.param(text(user={"exec": {"command": SECRET}}), "exec is refused", id="exec"),
    pytest.param(text(user={"auth-provider": {"name": "gcp"}}), "auth-provider is refused", id="auth-provider"),
    pytest.param(text(user={"tokenFile": "/t"}), "tokenFile is refused", id="token-file"),
    pytest.param(text(user={"client-certificate": "/c"}), "client-certificate is refused", id="certificate-file"),
    pytest.param(
        text(user={"client-certificate-data": "YQ==", "client-key": "/k"}), "client-key is refused", id="key-file"
    ),
    pytest.param(text({"certificate-authority": "/c"}), "certificate-authority is refused", id="ca-file"),
    pytest.param(text({"insecure-skip-tls-verify": True}), "insecure-skip-tls-verify is refused", id="skip-verify"),
    pytest.param(text({"server": "http://host"}), "server must be https", id="http"),
    *(
        pytest.param(text({"server": f"http{s}://{host}/latest"}), "server is refused in a Secret", id=f"{s} {host}")
        for s in ("", "s")
        for host in METADATA
    ),
    pytest.param(
        text({"proxy-url": "http://169.254.169.254"}), "proxy-url is refused in a Secret", id="proxy of metadata"
    ),
]
MALFORMED = [
    pytest.param(b"", "no current-context; its contexts are: none", id="empty"),
    pytest.param(b"- a", "not a mapping", id="list"),
    pytest.param(b"just text", "not a mapping", id="text"),
    pytest.param(b"a: [", "not valid YAML", id="broken-yaml"),
    pytest.param(b"a: !!python/object/apply:os.system [ls]", "not valid YAML", id="python-tag"),
    pytest.param(b"a: \x00", "not valid YAML", id="nul"),
    pytest.param(b"\xff\xfe" + "a: b".encode("utf-16le"), "not UTF-8", id="utf-16"),
    pytest.param(b"a: " + b"x" * (1 << 20), "is larger than", id="huge"),
    pytest.param(b"[" * 60_000, "not valid YAML", id="deep-flow"),
    pytest.param(b"- " * 30_000, "not valid YAML", id="deep-block"),
    pytest.param(b'{"a":' * 12_000, "not valid YAML", id="deep-json"),
    pytest.param(b"a: !!int 1:1:1", "not valid YAML", id="explicit-number"),
    pytest.param(b"a: &a {k: v}\nb: {<<: *a}", "merge keys (line 2, column 4)", id="merge-key"),
    pytest.param(text(kind="Secret"), "kind must be Config", id="kind"),
    pytest.param(text(apiVersion="v2"), "apiVersion v1", id="version"),
    pytest.param(text(current=None), "no current-context; its contexts are: ctx", id="no-current"),
    pytest.param(text(current="gone"), 'no context "gone"; its contexts are: ctx', id="wrong-current"),
    pytest.param(as_json(current=3), "current-context must be a string", id="number-current"),
    pytest.param(text(clusters=[]), 'cluster "c", which the kubeconfig does not have', id="no-cluster"),
    pytest.param(text(users=[]), 'user "u", which the kubeconfig does not have', id="no-such-user"),
    pytest.param(text(clusters={}), "clusters must be a list", id="clusters-mapping"),
    pytest.param(text(clusters=["c"]), "clusters entry 1 must be a mapping", id="cluster-text"),
    pytest.param(text(clusters=[{"cluster": {}}]), "clusters entry 1 has no name", id="nameless"),
    pytest.param(text(contexts=[{"name": "ctx", "context": {}}]), "names no cluster", id="context-without-cluster"),
    pytest.param(
        text(users=[{"name": "u", "user": {}}] * 2), 'users has two entries named "u"', id="duplicate-as-with-kubectl"
    ),
    pytest.param(text({"server": None}), "has no server", id="no-server"),
    pytest.param(text({"server": "host:6443"}), "server must be a URL", id="server-without-scheme"),
    pytest.param(text({"server": "https://"}), "server must be a URL", id="server-without-host"),
    pytest.param(text({"server": "https://host:port"}), "server must be a URL", id="server-bad-port"),
    pytest.param(text({"server": "https://host/a b"}), "server must be a URL", id="server-space"),
    *(
        pytest.param(text({"server": f"https://{host}"}), "server must be a URL", id=f"server-host-{number}")
        for number, host in enumerate(ODD_HOSTS)
    ),
    *(
        pytest.param(text({"proxy-url": f"http://{host}"}), "proxy-url must be a URL", id=f"proxy-host-{number}")
        for number, host in enumerate(ODD_HOSTS)
    ),
    *(
        pytest.param(text({"tls-server-name": host}), "tls-server-name must be a host name", id=f"tls-name-{number}")
        for number, host in enumerate([*ODD_HOSTS, "[::1]", "a\x00b", "\u2028", "host:1"])
    ),
    *(
        pytest.param(text({"proxy-url": f"http://{login}@p"}), "proxy-url must hold a user", id=f"proxy-login-{number}")
        for number, login in enumerate([f"u%3a:{SECRET}", f"u:{SECRET}%E2%82%AC", f"%FF:{SECRET}"])
    ),
    pytest.param(text({"server": "https://host?x"}), "no query", id="server-query"),
    pytest.param(text({"server": f"https://a:{SECRET}@host"}), "no user information", id="server-userinfo"),
    pytest.param(text({"proxy-url": f"socks5://a:{SECRET}@p"}), "SOCKS", id="socks"),
    pytest.param(text({"proxy-url": "proxy:3128"}), "proxy-url must be a URL", id="proxy-without-scheme"),
    pytest.param(text({"proxy-url": f"ftp://a:{SECRET}@p"}), "proxy-url must be a URL", id="proxy-ftp"),
    pytest.param(text({"certificate-authority-data": f"!{SECRET}"}), "is not base64", id="ca-not-base64"),
    pytest.param(text({"certificate-authority-data": SECRET}), "no PEM certificate", id="ca-not-pem"),
    pytest.param(as_json({"tls-server-name": 1}), "tls-server-name must be a string", id="number-name"),
    pytest.param(text({"insecure-skip-tls-verify": "yes"}), "must be true or false", id="flag-text"),
    pytest.param(as_json(user={"token": 12345}), "token must be a string; put it in quotes", id="number-token"),
    pytest.param(text(user={"token": f"{SECRET}\nX: y"}), "characters that no token has", id="header-in-token"),
    pytest.param(text(user={"token": SECRET, "username": "u"}), "only one of them", id="token-and-basic"),
    pytest.param(text(user={"client-key-data": SECRET}), "only of use together", id="key-alone"),
    pytest.param(text(user={"as-groups": ["g"]}), "only of use with as", id="group-alone"),
    pytest.param(text(user={"as": "a\r\nb"}), "printable ASCII", id="header-in-as"),
    pytest.param(as_json(user={"as": "a", "as-groups": [1]}), "list of strings", id="number-group"),
    pytest.param(text(users=[{"name": "u", "user": [SECRET]}]), "user must be a mapping", id="user-list"),
]


@pytest.mark.parametrize(("data", "said"), REFUSED + MALFORMED)
def test_refused_by_name_without_secrets(data: bytes, said: str) -> None:
    with pytest.raises(KubeconfigInvalid) as caught:
        from_secret(data)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.reason == "KubeconfigInvalid"


@pytest.mark.parametrize(("data", "said"), MALFORMED)
def test_a_persons_own_file_is_named(data: bytes, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "config", data)
    with pytest.raises(KubeconfigInvalid) as caught:
        load_file(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value) or "context" in str(caught.value)


def test_what_looks_like_a_number_to_base_60_costs_nothing() -> None:
    with pytest.raises(KubeconfigInvalid, match="no context") as caught:
        from_secret(b"current-context: " + b"1:" * 30_000 + b"1")
    assert len(str(caught.value)) <= 1000


def test_an_alias_bomb_costs_nothing() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]" for i in range(20)]
    with pytest.raises(KubeconfigInvalid, match="no current-context"):
        from_secret("\n".join(lines).encode())


def test_secrets_are_not_in_repr() -> None:
    made = from_secret(
        text(
            {"proxy-url": f"http://a:{SECRET}@p", "certificate-authority-data": CA64},
            {"token": SECRET, "client-certificate-data": SECRET, "client-key-data": SECRET},
        )
    )
    assert SECRET not in repr(made)
    assert "secret-value" not in repr(made)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({}, False, id="none"),
        pytest.param({"token": " "}, False, id="blank-token"),
        pytest.param({"as": "root"}, False, id="impersonation-alone"),
        pytest.param({"token": "t"}, True, id="token"),
        pytest.param({"username": "u"}, True, id="basic"),
        pytest.param({"client-certificate-data": "YQ==", "client-key-data": "YQ=="}, True, id="certificate"),
    ],
)
def test_whether_there_is_a_credential(user: dict[str, Any], *, expected: bool) -> None:
    assert from_secret(text(user=user)).has_credential is expected


def test_files_are_relative_to_their_kubeconfig(tmp_path: Path) -> None:
    write(tmp_path / "pki" / "ca.pem", CA)
    write(tmp_path / "cert", b"cert")
    write(tmp_path / "key", b"key")
    path = write(
        tmp_path / "config",
        text(
            {"certificate-authority": "pki/ca.pem"},
            {"client-certificate": "cert", "client-key": str(tmp_path / "key"), "tokenFile": "token"},
        ),
    )
    made = load_file(path)
    assert (made.ca, made.client_certificate, made.client_key) == (CA, b"cert", b"key")
    assert made.token_file == tmp_path / "token"


def test_data_wins_over_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "config", text({"certificate-authority": "missing", "certificate-authority-data": CA64}))
    assert load_file(path).ca == CA


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        pytest.param({"certificate-authority": "gone"}, {}, "gone cannot be read: No such file", id="missing-ca"),
        pytest.param({}, {"client-key": ".", "client-certificate": "."}, "cannot be read: Is a directory", id="folder"),
        pytest.param(
            {"insecure-skip-tls-verify": True, "certificate-authority-data": CA64},
            {},
            "exclude each other",
            id="skip+ca",
        ),
        pytest.param({}, {"auth-provider": {"name": "gcp"}}, "gcp is not supported", id="gcp"),
        pytest.param({}, {"auth-provider": {"name": "oidc"}}, "needs idp-issuer-url and client-id", id="oidc-empty"),
        pytest.param(
            {},
            {"auth-provider": {"name": "oidc", "config": {"idp-issuer-url": "http://i", "client-id": "c"}}},
            "must be https",
            id="oidc-http",
        ),
        pytest.param(
            {}, {"exec": {"command": "x"}, "auth-provider": {"name": "oidc"}}, "both exec and auth-provider", id="two"
        ),
        pytest.param({}, {"exec": {"command": "x"}}, "apiVersion must be one of", id="exec-version"),
        pytest.param(
            {},
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}},
            "apiVersion must be one of",
            id="exec-alpha",
        ),
        pytest.param({}, {"exec": {"args": ["x"]}}, "has no command", id="exec-command"),
    ],
)
def test_refused_in_a_persons_own(cluster: dict[str, Any], user: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(KubeconfigInvalid) as caught:
        load_file(write(tmp_path / "config", text(cluster, user)))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        pytest.param({"interactiveMode": "Sometimes"}, "interactiveMode must be", id="mode"),
        pytest.param({"args": [[]]}, "args must be a list of strings", id="args"),
        pytest.param({"env": [{"value": "x"}]}, "env must be a list of name and value", id="env-name"),
        pytest.param({"env": [{"name": "A", "value": []}]}, "env values must be strings", id="env-value"),
    ],
)
def test_malformed_exec(extra: dict[str, Any], said: str, tmp_path: Path) -> None:
    helper = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", **extra}
    with pytest.raises(KubeconfigInvalid) as caught:
        load_file(write(tmp_path / "config", text(user={"exec": helper})))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("command", "expected"),
    [pytest.param("aws", "aws", id="on-path"), pytest.param("./bin/login", "{}/bin/login", id="beside-the-file")],
)
def test_exec_helper_of_a_persons_own(command: str, expected: str, tmp_path: Path) -> None:
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": command,
            "args": ["get"],
            "env": [{"name": "A", "value": "b"}],
            "interactiveMode": "Never",
            "installHint": "get it",
            "provideClusterInfo": True,
        }
    }
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    path = write(tmp_path / "config", text({"certificate-authority-data": CA64, "extensions": [extension]}, user))
    helper = load_file(path).helper
    assert helper is not None
    assert helper.command == expected.format(tmp_path)
    assert (helper.args, helper.env, helper.interactive_mode) == (("get",), (("A", "b"),), "Never")
    assert helper.cluster == {
        "server": "https://host:6443",
        "certificate-authority-data": CA64,
        "config": {"audience": "x"},
    }


def test_a_person_may_have_a_cluster_at_a_link_local_address(tmp_path: Path) -> None:
    made = load_file(write(tmp_path / "config", text({"server": "https://169.254.1.2:6443"})))
    assert (made.server, made.avoids_metadata) == ("https://169.254.1.2:6443", False)
    assert from_secret(text()).avoids_metadata


def test_the_list_is_merged_as_kubectl_does(tmp_path: Path) -> None:
    one = write(
        tmp_path / "one" / "config",
        yaml.safe_dump({"users": [{"name": "u", "user": {"tokenFile": "token"}}], "current-context": "ctx"}).encode(),
    )
    two = write(tmp_path / "two", text({"server": "https://two"}, {"username": "x"}, current="other"))
    three = write(tmp_path / "three", text({"server": "https://three"}))
    environ = {"KUBECONFIG": f":{one}:{tmp_path / 'gone'}:{two}:{one}:{three}", "HOME": str(tmp_path)}
    made = from_files(environ=environ)
    assert (made.context, made.server) == ("ctx", "https://two")
    # The first file's user is taken whole, its path meant relative to the first file.
    assert (made.token_file, made.username) == (one.parent / "token", None)


def test_home_is_the_default(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", text())
    assert from_files(environ={"HOME": str(tmp_path)}).server == "https://host:6443"


def test_a_persons_own_may_skip_verification_and_use_http(tmp_path: Path) -> None:
    path = write(tmp_path / "config", text({"server": "http://127.0.0.1:8001", "insecure-skip-tls-verify": True}))
    made = load_file(path)
    assert (made.server, made.skip_tls_verify) == ("http://127.0.0.1:8001", True)


def test_the_context_can_be_chosen(tmp_path: Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c"}} for name in ("b", "a")]
    path = write(tmp_path / "config", text(contexts=contexts))
    assert from_files([path], "a").context == "a"
    with pytest.raises(KubeconfigInvalid, match='no context "x"; its contexts are: a, b'):
        from_files([path], "x")


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({}, id="home"),
        pytest.param({"KUBECONFIG": "gone"}, id="listed"),
        pytest.param({"KUBERNETES_SERVICE_HOST": "h"}, id="half-a-pod"),
    ],
)
def test_none_found(environ: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(KubeconfigInvalid, match=r"no kubeconfig found at .*; set KUBECONFIG"):
        from_files(environ={"HOME": str(tmp_path), **environ}, service_account=tmp_path)


def test_an_explicit_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigInvalid, match="cannot be read: No such file"):
        from_files([tmp_path / "gone"])


@pytest.mark.parametrize(
    ("host", "server"),
    [
        pytest.param("10.0.0.1", "https://10.0.0.1:443", id="ipv4"),
        pytest.param("fd::1", "https://[fd::1]:443", id="ipv6"),
    ],
)
def test_the_pods_own_access_when_there_is_nothing_else(host: str, server: str, tmp_path: Path) -> None:
    write(tmp_path / "token", b"abc")
    write(tmp_path / "ca.crt", CA)
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    expected = Connection(context="in-cluster", server=server, ca=CA, token_file=tmp_path / "token")
    assert from_files(environ=environ, service_account=tmp_path) == expected
    write(tmp_path / ".kube" / "config", text())
    assert from_files(environ=environ, service_account=tmp_path).context == "ctx"


def test_a_secret_of_many_entries_is_refused_before_it_takes_long() -> None:
    with pytest.raises(KubeconfigInvalid, match="larger than 64 KiB"):
        from_secret(b"a: b\n" * (SECRET_LIMIT // 5 + 1))


def test_a_persons_own_server_is_reached_through_the_proxy_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        "clusters: [{name: c, cluster: {server: 'https://api.example.com'}}]\n"
        "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"
    )
    assert from_files([file], environ={"HTTPS_PROXY": "proxy:3128"}).proxy_url == "http://proxy:3128"
    assert from_files([file], environ={}).proxy_url is None
    with pytest.raises(KubeconfigInvalid, match="proxy that the environment names"):
        from_files([file], environ={"HTTPS_PROXY": "socks5://proxy:1080"})
