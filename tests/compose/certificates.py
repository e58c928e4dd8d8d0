"""Certificates as InferenceGateways may publish them: valid ones, useless ones, and one in several encodings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

LONG: Final = timedelta(days=3650)
DAY: Final = timedelta(days=1)


def certificate(
    name: str = "client CA", *, begins: datetime | None = None, ends: datetime | None = None, ca: bool | None = True
) -> str:
    """A self-signed certificate as PEM; valid from yesterday for ten years unless said otherwise.

    Args:
        name: Its common name.
        begins: Its notBefore.
        ends: Its notAfter.
        ca: What its BasicConstraints say; None to leave them out.
    """
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(_key().public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins or now - DAY)
        .not_valid_after(ends or now + LONG)
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    return builder.sign(_key(), hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def expired(name: str = "client CA") -> str:
    """A CA's certificate that was good until yesterday."""
    now = datetime.now(UTC)
    return certificate(name, begins=now - LONG, ends=now - DAY)


def otherwise(pem: str) -> str:
    """The same certificate in another encoding: a text before it, one long line, the line ends of Windows."""
    begin, *lines, end = pem.splitlines()
    return "\r\n".join(["subject=CN = client CA", begin, "".join(lines), end, "", ""])


def private_key() -> str:
    """A private key as PEM, which has no business in a status."""
    return _key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@cache
def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())
