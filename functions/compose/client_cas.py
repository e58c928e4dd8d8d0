"""Who may call a gateway: the client CAs that the InferenceGateways of the hub publish."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from cryptography.x509 import Certificate

    from functions.access.errors import AccessError


@dataclass(frozen=True, slots=True)
class ClientCAs:
    """The client CAs that are valid now.

    Attributes:
        bundle: Their certificates as PEM, each once, by the names of their gateways; empty where there is none.
        left_out: What was published and is of no use, with the reason.
        missing: Why there is none, for people; empty where there is one.
        trouble: Why it cannot be told whether there is one; None where it can.
    """

    bundle: str = ""
    left_out: tuple[str, ...] = ()
    missing: str = ""
    trouble: AccessError | None = None


_CERTIFICATE: Final = re.compile(r"-----BEGIN (X509 |)CERTIFICATE-----[^-]*(?:-----END \1CERTIFICATE-----)?")
"""One certificate in a text, its end included where it has one."""
NOT_INSTALLED: Final = ClientCAs(missing="the hub does not have the API InferenceGateway")


def read_client_cas(gateways: Iterable[Mapping[str, Any]], now: datetime) -> ClientCAs:
    """What the InferenceGateways of a hub publish.

    Args:
        gateways: The objects.
        now: Decides which certificates are within their dates.
    """
    published = [
        (f"client CA of InferenceGateway {gateway['metadata']['name']}", text)
        for gateway in sorted(gateways, key=lambda each: str(each["metadata"]["name"]))
        if (text := (gateway.get("status") or {}).get("clientCACertificate"))
    ]
    found = read_certificates(published, now)
    return found if found.bundle else replace(found, missing=_missing(len(published)))


def read_certificates(texts: Iterable[tuple[str, str]], now: datetime) -> ClientCAs:
    """The certificates of PEM texts, each with a name for people, in their order."""
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - 40 ms that few starts need

    valid: dict[bytes, str] = {}
    left_out = []
    for name, text in texts:
        for certificate, trouble in _certificates(str(text), now):
            if certificate is None or trouble:
                left_out.append(f"{name}: {trouble}")
            else:
                pem = certificate.public_bytes(Encoding.PEM).decode()
                valid.setdefault(certificate.public_bytes(Encoding.DER), pem)
    return ClientCAs("".join(valid.values()), tuple(dict.fromkeys(left_out)))


def _certificates(text: str, now: datetime) -> list[tuple[Certificate | None, str]]:
    """Each certificate of a PEM text with what is wrong with it; None and the reason for what is none."""
    found = [_certificate(each[0], now) for each in _CERTIFICATE.finditer(text)]
    return found or [(None, "it is no PEM certificate")]


def _certificate(pem: str, now: datetime) -> tuple[Certificate | None, str]:
    from cryptography import x509  # noqa: PLC0415 - see above

    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        certificate.public_key()  # a gateway refuses all of a bundle for one key that is none
        return certificate, _trouble(certificate, now)
    except Exception:  # noqa: BLE001 - it can be wrong in more ways than the parser documents, and harms nobody else
        return None, "it does not parse"


def _trouble(certificate: Certificate, now: datetime) -> str:
    from cryptography import x509  # noqa: PLC0415 - see above

    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        constraints = None
    if constraints is None or not constraints.ca:
        return "it is not the certificate of a CA"
    if now < certificate.not_valid_before_utc:
        return f"it is not valid before {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    if now > certificate.not_valid_after_utc:
        return f"it expired on {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return ""


def _missing(published: int) -> str:
    if not published:
        return "no InferenceGateway has published a client CA"
    return "no InferenceGateway has published a client CA that is valid now"
