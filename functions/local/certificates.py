"""The keys and certificates of one embedded control plane; none of them is known to anyone else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

_LIFETIME: Final = timedelta(days=365)
_CLOCK_SKEW: Final = timedelta(minutes=5)


def private_key() -> bytes:
    """A new private key on the curve P-256, as unencrypted PEM."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


class Authority:
    """A certificate authority that signs for one control plane.

    Attributes:
        certificate: Its own certificate as PEM.
    """

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate
        self.certificate = certificate.public_bytes(Encoding.PEM)

    @classmethod
    def new(cls) -> Self:
        """An authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "modelplane-serving-stack local")])
        usage = _usage(sign_certificates=True)
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        builder = _builder(name, key.public_key()).issuer_name(name).add_extension(constraint, critical=True)
        return cls(key, builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()))

    def serving(self, *, names: Sequence[str] = (), addresses: Sequence[str] = ()) -> tuple[bytes, bytes]:
        """Certificate and key, as PEM, of a server at 127.0.0.1 and localhost, and at further names and addresses."""
        hosts = [x509.DNSName(name) for name in ("localhost", *names)]
        numbers = [x509.IPAddress(IPv4Address(address)) for address in ("127.0.0.1", *addresses)]
        alternatives = x509.SubjectAlternativeName([*hosts, *numbers])
        return self._sign(_name("kube-apiserver", ()), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: str, groups: Sequence[str] = ()) -> tuple[bytes, bytes]:
        """Certificate and key, as PEM, by which the API server knows a user of some groups."""
        return self._sign(_name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    def _sign(
        self, subject: x509.Name, purpose: x509.ObjectIdentifier, *more: x509.ExtensionType
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, key.public_key())
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        for extension in more:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM), _pem(key)


def _builder(subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # Not PKCS #8: kube-apiserver takes an EC key of service accounts in this form only.
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
