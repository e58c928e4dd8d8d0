"""Which of the published client CAs a gateway trusts, and what is said of those that it does not."""

from __future__ import annotations

import base64
import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from functions.compose.client_cas import NOT_INSTALLED, ClientCAs, read_client_cas
from tests.compose.certificates import DAY, certificate, expired, otherwise, private_key

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = datetime.now(UTC).replace(microsecond=0)
FIRST, SECOND, THIRD = certificate("first"), certificate("second"), certificate("third")
LEAF = certificate("leaf", ca=False)
NO_CONSTRAINTS = certificate("plain", ca=None)
EXPIRED = expired()
FUTURE = certificate("future", begins=NOW + DAY)
MALFORMED = "-----BEGIN CERTIFICATE-----\nbm90IGEgY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n"
CUT_OFF = FIRST[: len(FIRST) // 2]


def gateway(name: str, text: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"clientCACertificate": text}}


def read(texts: Mapping[str, Any], now: datetime = NOW) -> ClientCAs:
    """What comes of the texts that InferenceGateways of these names publish."""
    return read_client_cas([gateway(name, text) for name, text in texts.items()], now)


def in_other_form(pem: str, version: bytes) -> str:
    """The certificate with another version number, which X.509 does not have."""
    der = x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.DER)
    return as_pem(der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01" + version, 1))


def as_pem(der: bytes) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(der).decode()}-----END CERTIFICATE-----\n"


def test_sorted_by_the_names_of_the_gateways() -> None:
    assert read({"b": SECOND, "c": THIRD, "a": FIRST}).bundle == FIRST + SECOND + THIRD


def test_the_same_bundle_in_whatever_order_the_gateways_are_listed() -> None:
    gateways = [gateway("b", SECOND), gateway("a", FIRST + THIRD), gateway("c", FIRST), gateway("d", LEAF)]
    found = {read_client_cas(each, NOW) for each in itertools.permutations(gateways)}
    assert len(found) == 1
    assert found.pop().bundle == FIRST + THIRD + SECOND


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(FIRST.replace("\n", "\r\n"), id="line-ends-of-windows"),
        pytest.param(otherwise(FIRST), id="one-long-line-after-a-text"),
        pytest.param("issuer=CN = first\n" + FIRST, id="text-before"),
        pytest.param(FIRST + "the end", id="text-after"),
        pytest.param(FIRST.strip(), id="no-line-end"),
        pytest.param(FIRST.replace("CERTIFICATE", "X509 CERTIFICATE"), id="old-label"),
        pytest.param(FIRST + FIRST, id="twice"),
        pytest.param(FIRST + private_key(), id="its-key-behind"),
        pytest.param(private_key() + FIRST, id="its-key-before"),
    ],
)
def test_each_certificate_once_whatever_its_encoding(text: str) -> None:
    assert read({"eu": FIRST, "us": text}) == ClientCAs(FIRST)
    assert read({"eu": text}) == ClientCAs(FIRST)


def test_several_certificates_in_one_text() -> None:
    assert read({"eu": FIRST.strip() + SECOND, "us": THIRD + FIRST}).bundle == FIRST + SECOND + THIRD


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("hello", "it is no PEM certificate", id="text"),
        pytest.param(private_key(), "it is no PEM certificate", id="private-key"),
        pytest.param(FIRST.replace("CERTIFICATE", "CERTIFICATE REQUEST"), "it is no PEM certificate", id="request"),
        pytest.param(17, "it is no PEM certificate", id="number"),
        pytest.param(MALFORMED, "it does not parse", id="malformed"),
        pytest.param(CUT_OFF, "it does not parse", id="cut-off"),
        pytest.param(in_other_form(FIRST, b"\x07"), "it does not parse", id="unknown-version"),
        pytest.param(LEAF, "it is not the certificate of a CA", id="leaf"),
        pytest.param(NO_CONSTRAINTS, "it is not the certificate of a CA", id="no-basic-constraints"),
        pytest.param(EXPIRED, "it expired on ", id="expired"),
        pytest.param(FUTURE, f"it is not valid before {NOW + DAY:%Y-%m-%dT%H:%M:%SZ}", id="not-yet-valid"),
    ],
)
@pytest.mark.parametrize("place", ["alone", "before", "behind", "beside"])
def test_what_is_of_no_use_is_left_out_and_named(text: Any, why: str, place: str) -> None:
    texts: dict[str, Any] = {"eu": text}
    if place in {"before", "behind"}:
        texts = {"eu": f"{text}\n{SECOND}" if place == "before" else f"{SECOND}\n{text}"}
    elif place == "beside":
        texts = {"eu": text, "us": SECOND}
    found = read(texts)
    without_any_certificate = "no PEM" in why
    if place in {"before", "behind"} and without_any_certificate:  # a text beside the certificate
        assert found == ClientCAs(SECOND)
        return
    (left_out,) = found.left_out
    assert left_out.startswith(f"client CA of InferenceGateway eu: {why}")
    if place == "alone":
        assert (found.bundle, found.missing) == (
            "",
            "no InferenceGateway has published a client CA that is valid now",
        )
    else:
        assert (found.bundle, found.missing) == (SECOND, "")


@pytest.mark.parametrize("text", [None, ""])
def test_a_gateway_that_has_published_nothing_is_skipped(text: str | None) -> None:
    assert read({"eu": text}) == ClientCAs(missing="no InferenceGateway has published a client CA")
    assert read({"eu": text, "us": FIRST}) == ClientCAs(FIRST)


def test_a_gateway_without_status() -> None:
    nothing = ClientCAs(missing="no InferenceGateway has published a client CA")
    assert read_client_cas([{"metadata": {"name": "eu"}}, {"metadata": {"name": "us"}, "status": None}], NOW) == nothing
    assert read_client_cas([], NOW) == nothing
    assert not NOT_INSTALLED.bundle


INSTANT = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("moment", "valid"),
    [
        pytest.param(NOW - INSTANT, False, id="before-notBefore"),
        pytest.param(NOW, True, id="notBefore"),
        pytest.param(NOW + DAY, True, id="notAfter"),
        pytest.param(NOW + DAY + INSTANT, False, id="after-notAfter"),
    ],
)
def test_both_ends_of_its_dates_belong_to_them(moment: datetime, valid: bool) -> None:  # noqa: FBT001
    pem = certificate(begins=NOW, ends=NOW + DAY)
    assert bool(read({"eu": pem}, moment).bundle) is valid


def test_a_renewed_certificate_counts_beside_the_old_one_until_that_expires() -> None:
    old, new = certificate("ca", ends=NOW + DAY), certificate("ca", begins=NOW, ends=NOW + 3 * DAY)
    assert read({"eu": old + new}).bundle == old + new
    later = read({"eu": old + new}, NOW + 2 * DAY)
    assert later.bundle == new
    assert later.left_out == (f"client CA of InferenceGateway eu: it expired on {NOW + DAY:%Y-%m-%dT%H:%M:%SZ}",)


def test_a_text_full_of_rubbish_is_named_once() -> None:
    found = read({"eu": MALFORMED * 150, "us": FIRST})
    assert found == ClientCAs(FIRST, ("client CA of InferenceGateway eu: it does not parse",))


def test_nothing_of_a_private_key_gets_anywhere() -> None:
    key = private_key()
    found = read({"eu": key, "us": FIRST + key, "za": key.replace("PRIVATE KEY", "CERTIFICATE")})
    said = found.bundle + "".join(found.left_out) + found.missing
    assert "PRIVATE" not in said
    assert not [line for line in key.splitlines() if line.strip("-") and not line.startswith("---") and line in said]
    assert found.bundle == FIRST


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\0\x01\x7f\ud800" + "\u2028" * 100, id="binary"),
        pytest.param("A" * 16384, id="garbage"),
        pytest.param("-----BEGIN CERTIFICATE-----" * 606, id="only-begins"),
        pytest.param("-" * 16384, id="dashes"),
        pytest.param("-----BEGIN CERTIFICATE-----\n" + "A" * 16000, id="no-end"),
        pytest.param("-----BEGIN CERTIFICATE-----\nAAAA-----END CERTIFICATE-----\n" * 280, id="many-empty"),
    ],
)
def test_hostile_texts_harm_nobody(text: str) -> None:
    found = read({"eu": text, "us": FIRST})
    assert found.bundle == FIRST
    assert len("".join(found.left_out)) < 200


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_certificate_with_any_byte_changed_harms_nobody(place: int, value: int) -> None:
    der = bytearray(x509.load_pem_x509_certificate(SECOND.encode()).public_bytes(Encoding.DER))
    der[place % len(der)] = value
    assert read({"eu": as_pem(bytes(der)), "us": FIRST}).bundle.endswith(FIRST)


@given(st.text())
def test_any_text_harms_nobody(text: str) -> None:
    assert FIRST in read({"eu": text, "us": FIRST}).bundle
