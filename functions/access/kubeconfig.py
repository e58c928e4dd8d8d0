"""From a kubeconfig to a `Connection`, through one of two doors.

`from_secret` is for the kubeconfig of a target: it came from someone else, so that nothing in it may run a program,
read a file of ours or skip a check. `from_files` is for a person's own: it works as with kubectl.
"""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast
from urllib.parse import quote

from functions.access import document, proxy, tls
from functions.access.addresses import has_usable_login, http_url, is_host, is_metadata_service
from functions.access.connection import Connection, ExecHelper, Oidc
from functions.access.errors import KubeconfigInvalid, UnknownContext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from urllib.parse import SplitResult

    from functions.access.document import Document, Part

SECRET_LIMIT: Final = 1 << 16
"""The largest kubeconfig in a Secret, in bytes: reading one of many tiny entries takes seconds a megabyte."""

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"
_NOT_IN_SECRET: Final = {
    "exec": "a program cannot be run here; use the token of a ServiceAccount",
    "auth-provider": "a login cannot be kept here; use the token of a ServiceAccount",
    "tokenFile": "there is no such file here; put the token itself into token",
    "client-certificate": "there is no such file here; put its base64 into client-certificate-data",
    "client-key": "there is no such file here; put its base64 into client-key-data",
    "certificate-authority": "there is no such file here; put its base64 into certificate-authority-data",
}


def from_secret(data: bytes) -> Connection:
    """The current context of a kubeconfig that a Secret holds.

    Raises:
        KubeconfigInvalid: It is malformed, or asks for more than inline data can give.
    """
    if len(data) > SECRET_LIMIT:
        raise KubeconfigInvalid(f"the kubeconfig is larger than {SECRET_LIMIT >> 10} KiB; keep one context in it")
    return _connection(document.parse(data), None, trusted=False)


def from_files(
    paths: Sequence[Path] | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    service_account: Path = _SERVICE_ACCOUNT,
) -> Connection:
    """A context of a person's own kubeconfig, found and merged as kubectl does.

    Args:
        paths: Files that have to exist; None for those in KUBECONFIG, else ~/.kube/config, else the pod's own access.
        context: Name of the context; None for the current one.
        environ: The environment.
        service_account: Where a pod finds its token.

    Raises:
        KubeconfigInvalid: None is found, one is malformed, or the context is not in them.
    """
    if paths is not None:
        return _own(document.merge([_read(path) for path in paths]), context, environ)
    listed = [Path(each) for each in environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    wanted = listed or [Path(environ.get("HOME") or Path.home(), ".kube", "config")]
    found = [_read(path) for path in dict.fromkeys(wanted) if path.exists()]
    if found:
        return _own(document.merge(found), context, environ)
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if context is None and host and port and (service_account / "token").exists():
        return _in_cluster(host, port, service_account)
    names = ", ".join(str(path) for path in wanted)
    raise KubeconfigInvalid(f"no kubeconfig found at {names}; set KUBECONFIG or pass --kubeconfig")


def load_file(path: Path) -> Connection:
    """The current context of one file of a person's own.

    Raises:
        KubeconfigInvalid: It cannot be read, or is malformed.
    """
    return from_files([path])


def _read(path: Path) -> Document:
    return document.parse(_bytes(path, f"kubeconfig {path}"), path.absolute())


def _bytes(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(document.SIZE_LIMIT + 1)
    except OSError as error:
        raise KubeconfigInvalid(f"{what} cannot be read: {error.strerror}") from None


def _in_cluster(host: str, port: str, service_account: Path) -> Connection:
    host = f"[{host}]" if ":" in host else host
    return Connection(
        context="in-cluster",
        server=f"https://{host}:{port}",
        ca=_bytes(service_account / "ca.crt", "the ServiceAccount's ca.crt"),
        token_file=service_account / "token",
    )


def _own(whole: Document, context: str | None, environ: Mapping[str, str]) -> Connection:
    """A connection out of a person's own kubeconfig, through the proxy that the environment asks for."""
    connection = _connection(whole, context, trusted=True)
    url = connection.proxy_url or proxy.from_environment(connection.server, environ)
    parts = None if url is None else http_url(url)
    if url is not None and (parts is None or not has_usable_login(parts)):
        raise KubeconfigInvalid("the proxy that the environment names must be a URL such as http://host:3128")
    return replace(connection, proxy_url=url)


def _connection(whole: Document, wanted: str | None, *, trusted: bool) -> Connection:
    name = wanted or whole.current_context
    known = ", ".join(sorted(whole.contexts)) or "none"
    if name is None:
        raise KubeconfigInvalid(f"the kubeconfig has no current-context; its contexts are: {known}")
    context = whole.contexts.get(name)
    if context is None:
        raise UnknownContext(f'the kubeconfig has no context "{name}"; its contexts are: {known}')
    cluster = _named(context, "cluster", whole.clusters)
    if cluster is None:
        context.invalid("names no cluster")
    user = _named(context, "user", whole.users)
    fields = _cluster_fields(cluster, trusted=trusted)
    if user is not None:
        fields |= _user_fields(user, trusted=trusted)
        helper = user.part("exec")
        if helper is not None:
            fields["helper"] = _exec(helper, cluster, fields)
    return Connection(context=name, avoids_metadata=not trusted, **fields)


def _named(context: Part, kind: str, parts: Mapping[str, Part]) -> Part | None:
    name = context.text(kind)
    if name is None:
        return None
    if name not in parts:
        context.invalid(f'names the {kind} "{name}", which the kubeconfig does not have')
    return parts[name]


def _cluster_fields(cluster: Part, *, trusted: bool) -> dict[str, Any]:
    ca = _pem(cluster, "certificate-authority", trusted=trusted)
    if ca is not None and not tls.certificates(ca):
        cluster.invalid("certificate-authority-data holds no PEM certificate")
    skip = cluster.flag("insecure-skip-tls-verify")
    if skip and not trusted:
        cluster.invalid(
            "insecure-skip-tls-verify is refused: anyone on the way could take the credential; "
            "put the cluster's CA into certificate-authority-data"
        )
    if skip and ca is not None:
        cluster.invalid("insecure-skip-tls-verify and a certificate authority exclude each other")
    return {
        "server": _server(cluster, trusted=trusted),
        "ca": ca,
        "skip_tls_verify": skip,
        "tls_server_name": _tls_server_name(cluster),
        "proxy_url": _proxy(cluster, trusted=trusted),
        "compression": not cluster.flag("disable-compression"),
    }


def _user_fields(user: Part, *, trusted: bool) -> dict[str, Any]:
    for name in ("exec", "auth-provider", "tokenFile"):
        if not trusted and user.fields.get(name):
            _refuse(user, name)
    certificate = _pem(user, "client-certificate", trusted=trusted)
    key = _pem(user, "client-key", trusted=trusted)
    if (certificate is None) != (key is None):
        user.invalid("a client certificate and a client key are only of use together")
    token, token_file, username = _token(user), user.text("tokenFile"), user.text("username")
    if username is not None and (token or token_file):
        user.invalid("has both a token and a username; only one of them can be used")
    if user.fields.get("exec") and user.fields.get("auth-provider"):
        user.invalid("has both exec and auth-provider; only one of them can be used")
    return {
        "client_certificate": certificate,
        "client_key": key,
        "token": token,
        "token_file": _beside(user, token_file) if token_file else None,
        "username": username,
        "password": user.text("password"),
        "oidc": _oidc(user),
        "impersonate": _impersonate(user),
    }


def _token(user: Part) -> str | None:
    token = (user.text("token") or "").strip()
    if not (token.isascii() and token.isprintable() and " " not in token):
        user.invalid("token holds characters that no token has")
    return token or None


def _pem(part: Part, name: str, *, trusted: bool) -> bytes | None:
    """The content of `<name>-data`, else of the file `name`."""
    path = part.text(name)
    if path is not None and not trusted:
        _refuse(part, name)
    data = part.data(f"{name}-data")
    if data is None and path is not None:
        return _bytes(_beside(part, path), f"{part.where}: {name} {path}")
    return data


def _refuse(part: Part, name: str) -> NoReturn:
    part.invalid(f"{name} is refused in a Secret: {_NOT_IN_SECRET[name]}")


def _beside(part: Part, path: str) -> Path:
    """A path as its kubeconfig means it: relative to that file."""
    return part.file.parent / path if part.file is not None else Path(path)


def _server(cluster: Part, *, trusted: bool) -> str:
    url = cluster.text("server")
    if url is None:
        cluster.invalid("has no server")
    parts = http_url(url)
    if parts is None:
        cluster.invalid("server must be a URL such as https://host:6443")
    if parts.username is not None:
        cluster.invalid("server must hold no user information; put it into the user's entry")
    if parts.query or parts.fragment:
        cluster.invalid("server must have no query and no fragment")
    if not trusted:
        _check_host(cluster, "server", parts)
    if parts.scheme == "http" and not trusted:
        cluster.invalid("server must be https: anyone on the way could take the credential")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _tls_server_name(cluster: Part) -> str | None:
    name = cluster.text("tls-server-name")
    if name is not None and not is_host(name):
        cluster.invalid("tls-server-name must be a host name or an IP address")
    return name


def _check_host(cluster: Part, name: str, parts: SplitResult) -> None:
    if is_metadata_service(parts.hostname or ""):
        cluster.invalid(f"{name} is refused in a Secret: {parts.hostname} is a cloud's metadata service, not a cluster")


def _proxy(cluster: Part, *, trusted: bool) -> str | None:
    url = cluster.text("proxy-url")
    if url is None:
        return None
    if url.lower().startswith("socks"):
        cluster.invalid("proxy-url names a SOCKS proxy, which is not supported; use an http or https proxy")
    parts = http_url(url)
    if parts is None:
        cluster.invalid("proxy-url must be a URL such as http://host:3128")
    if not trusted:
        _check_host(cluster, "proxy-url", parts)
    if not has_usable_login(parts):
        cluster.invalid("proxy-url must hold a user without a colon, and user and password in Latin-1")
    return url


def _impersonate(user: Part) -> tuple[tuple[str, str], ...]:
    """The headers of `as`, `as-uid`, `as-groups` and `as-user-extra`."""
    name = user.text("as")
    headers = [("Impersonate-Group", group) for group in user.texts("as-groups")]
    headers += [("Impersonate-Uid", uid) for uid in filter(None, (user.text("as-uid"),))]
    extra = user.part("as-user-extra")
    for key in extra.fields if extra else ():
        values = extra.texts(key) if extra else ()
        headers += [(f"Impersonate-Extra-{quote(key.lower(), safe='')}", value) for value in values]
    if name is None:
        if headers:
            user.invalid("as-groups, as-uid and as-user-extra are only of use with as")
        return ()
    headers.insert(0, ("Impersonate-User", name))
    if not all(value.isascii() and value.isprintable() for _, value in headers):
        user.invalid("as and what goes with it must be printable ASCII")
    return tuple(headers)


def _oidc(user: Part) -> Oidc | None:
    provider = user.part("auth-provider")
    if provider is None:
        return None
    name = provider.text("name")
    if name != "oidc":
        provider.invalid(f"{name} is not supported; use the exec helper that took its place, as kubectl needs it too")
    config = provider.part("config") or provider
    issuer, client = config.text("idp-issuer-url"), config.text("client-id")
    if issuer is None or client is None or user.file is None:
        config.invalid("needs idp-issuer-url and client-id")
    if not issuer.startswith("https://"):
        config.invalid("idp-issuer-url must be https")
    return Oidc(
        issuer_url=issuer,
        client_id=client,
        client_secret=config.text("client-secret") or "",
        id_token=config.text("id-token") or "",
        refresh_token=config.text("refresh-token") or "",
        ca=_pem(config, "idp-certificate-authority", trusted=True),
        file=user.file,
    )


def _exec(helper: Part, cluster: Part, fields: Mapping[str, Any]) -> ExecHelper:
    command, version = helper.text("command"), helper.text("apiVersion")
    if command is None:
        helper.invalid("has no command")
    if version not in _EXEC_VERSIONS:
        helper.invalid(f"apiVersion must be one of {', '.join(_EXEC_VERSIONS)}")
    if "/" in command:
        command = str(_beside(helper, command))
    mode = helper.text("interactiveMode") or "IfAvailable"
    if mode not in {"Never", "IfAvailable", "Always"}:
        helper.invalid("interactiveMode must be Never, IfAvailable or Always")
    return ExecHelper(
        api_version=version,
        command=command,
        args=helper.texts("args"),
        env=_variables(helper),
        interactive_mode=cast("Any", mode),
        install_hint=helper.text("installHint") or "",
        cluster=_cluster_info(cluster, fields) if helper.flag("provideClusterInfo") else None,
    )


def _variables(helper: Part) -> tuple[tuple[str, str], ...]:
    found = []
    for entry in helper.items("env"):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            helper.invalid("env must be a list of name and value")
        value = entry.get("value", "")
        if not isinstance(value, str):
            helper.invalid("env values must be strings; put each in quotes")
        found.append((entry["name"], value))
    return tuple(found)


def _cluster_info(cluster: Part, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`spec.cluster` of an ExecCredential."""
    ca = fields["ca"]
    config = next(
        (
            extension.get("extension")
            for extension in cluster.items("extensions")
            if isinstance(extension, dict) and extension.get("name") == _EXEC_EXTENSION
        ),
        None,
    )
    info = {
        "server": fields["server"],
        "tls-server-name": fields["tls_server_name"],
        "insecure-skip-tls-verify": fields["skip_tls_verify"],
        "certificate-authority-data": None if ca is None else base64.b64encode(ca).decode(),
        "proxy-url": fields["proxy_url"],
        "config": config,
    }
    return {name: value for name, value in info.items() if value}
