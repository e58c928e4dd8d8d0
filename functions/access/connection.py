"""Where a cluster is and how to prove who we are there: what `kubeconfig` makes and `client` uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecHelper:
    """A program that prints a credential (`user.exec` of a kubeconfig).

    Attributes:
        api_version: Version of ExecCredential that it speaks.
        command: Program name or path; a relative path is already resolved against its kubeconfig.
        args: Arguments.
        env: Variables set beside our own environment.
        interactive_mode: Whether it may, or must, ask the person at the terminal.
        install_hint: What the kubeconfig says about getting the program.
        cluster: `spec.cluster` of the ExecCredential that it is given; None where it did not ask for it.
    """

    api_version: str
    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(slots=True, kw_only=True)
class Oidc:
    """An OpenID Connect login (`user.auth-provider` oidc of a kubeconfig).

    Attributes:
        issuer_url: Where tokens are refreshed.
        client_id: Who asks for them.
        client_secret: Proves it; empty for a public client.
        id_token: The JWT that the API server is shown.
        refresh_token: What a new one is got with; changes where the issuer rotates it.
        ca: PEM of the issuer's certificate authorities; None for those of the system.
        file: The kubeconfig that holds the tokens; a rotated refresh token is written back there.
    """

    issuer_url: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    ca: bytes | None = field(default=None, repr=False)
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One context of a kubeconfig, complete and checked. Secrets are left out of its `repr`.

    Attributes:
        context: Name of the context, `in-cluster` for the ServiceAccount of a pod.
        server: URL of the API server with its path prefix, without trailing slash and user information.
        ca: PEM of the certificate authorities; None for those of the system.
        client_certificate: PEM chain; always together with `client_key`.
        client_key: PEM, not encrypted.
        token: Bearer token.
        token_file: File that holds the bearer token and changes; wins over `token`.
        username: For basic authentication, with `password`.
        password: For basic authentication.
        helper: Program that gives the credential.
        oidc: Login that gives the credential.
        impersonate: Impersonation headers, in order.
        proxy_url: HTTP or HTTPS proxy, with its user information.
        tls_server_name: Name that the server's certificate is checked against instead of the host.
        skip_tls_verify: Whether the server's certificate goes unchecked.
        compression: Whether answers may be compressed.
        avoids_metadata: Whether it must not lead to an address of a cloud's metadata service.
    """

    context: str
    server: str
    ca: bytes | None = field(default=None, repr=False)
    client_certificate: bytes | None = field(default=None, repr=False)
    client_key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    helper: ExecHelper | None = None
    oidc: Oidc | None = None
    impersonate: tuple[tuple[str, str], ...] = ()
    proxy_url: str | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    skip_tls_verify: bool = False
    compression: bool = True
    avoids_metadata: bool = False

    @property
    def has_credential(self) -> bool:
        """Whether it carries any proof of identity."""
        return any((self.client_certificate, self.token, self.token_file, self.username, self.helper, self.oidc))

    @property
    def endpoint(self) -> tuple[object, ...]:
        """All that says where the server is and how it is trusted: equal ones differ in their credential alone."""
        return (
            self.server,
            self.ca,
            self.proxy_url,
            self.tls_server_name,
            self.skip_tls_verify,
            self.avoids_metadata,
        )
