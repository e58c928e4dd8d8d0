"""TLS contexts from the PEM that a kubeconfig holds, in memory; used by `client` and `oidc`."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from functions.access.errors import KubeconfigInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]+-----END CERTIFICATE-----")


def certificates(pem: bytes) -> bytes:
    """The certificates of a PEM text without what stands around them; empty where there are none."""
    return b"\n".join(_CERTIFICATE.findall(pem))


def trust(ca: bytes | None, *, verify: bool = True) -> ssl.SSLContext:
    """A client context that trusts the authorities in `ca` (PEM), or those of the system where it is None.

    Raises:
        KubeconfigInvalid: `ca` holds no usable certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    # As kubectl does it: any listed certificate is an anchor, and authorities made before RFC 5280 was enforced
    # (Python 3.13 enforces it by default) still count. Chain, dates and host name are checked all the same.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if ca is None:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(cadata=certificates(ca).decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise KubeconfigInvalid("certificate-authority-data holds no usable PEM certificate") from None
    return context


def present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Let the context present a client certificate (PEM chain) with its key (PEM).

    Raises:
        KubeconfigInvalid: One of them is not usable, or they do not belong together.
    """
    if b"ENCRYPTED" in key:
        raise KubeconfigInvalid("the client key is encrypted; store it without a passphrase")
    with _path(certificate + b"\n" + key) as path:
        try:
            # A password of our own, so that OpenSSL never asks for one on the terminal.
            context.load_cert_chain(path, password="")
        except (ssl.SSLError, ValueError) as error:
            wrong = "do not belong together" if "KEY_VALUES_MISMATCH" in str(error) else "are not usable PEM"
            raise KubeconfigInvalid(f"the client certificate and the client key {wrong}") from None


@contextmanager
def _path(content: bytes) -> Iterator[str]:
    """A path with that content, for OpenSSL reads client certificates from files only; on Linux it is never on disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}"
        remove = False
    else:
        descriptor, path = tempfile.mkstemp()  # readable by us alone
        remove = True
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path
    finally:
        os.close(descriptor)
        if remove:
            os.unlink(path)  # noqa: PTH108 - mirrors mkstemp
