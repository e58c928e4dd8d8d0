from __future__ import annotations

import base64

import pytest

from functions.access.redaction import redact

BASIC = "Basic " + base64.b64encode(b"jane:s3cr3t").decode()
PROXY = "http://bob:p%40ss@proxy:3128"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param("no such host", "no such host", id="nothing"),
        pytest.param("the token tok-1 is bad", "the token [redacted] is bad", id="token"),
        pytest.param(
            "GET /\r\nAuthorization: Bearer tok-1\r\nX: y", "GET /\r\nAuthorization: [redacted]\r\nX: y", id="head"
        ),
        pytest.param("debug: Authorization=Bearer tok-1", "debug: Authorization=[redacted]", id="equals"),
        pytest.param('{"authorization": "Bearer another"}', '{"authorization": "[redacted]"}', id="json-of-another"),
        pytest.param(
            '{"message":"got \\"Authorization\\":\\"Bearer x\\"\\nend"}',
            '{"message":"got \\"Authorization\\":\\"[redacted]\\"\\nend"}',
            id="json-in-json",
        ),
        pytest.param("map[Authorization:[Bearer x] A:[b]]", "map[Authorization:[redacted]", id="go-map"),
        pytest.param("sent Bearer x", "sent Bearer [redacted]", id="bearer-alone"),
        pytest.param("Proxy-Authorization: Basic eDp5", "Proxy-Authorization: [redacted]", id="proxy-header"),
        pytest.param("via http://bob:p%40ss@proxy:3128", "via http://[redacted]@proxy:3128", id="proxy-url"),
        pytest.param("password p@ss", "password [redacted]", id="proxy-password"),
        pytest.param("got " + base64.b64encode(b"bob:p@ss").decode(), "got [redacted]", id="proxy-pair"),
        pytest.param(
            "authorization denied, bearer of bad news", "authorization denied, bearer of bad news", id="prose"
        ),
    ],
)
def test_what_a_server_echoes(said: str, expected: str) -> None:
    assert redact(said.encode(), "Bearer tok-1", PROXY).decode() == expected


@pytest.mark.parametrize(
    "said",
    [pytest.param(BASIC, id="value"), pytest.param(BASIC[6:], id="pair"), pytest.param("s3cr3t", id="password")],
)
def test_a_password_that_a_server_echoes(said: str) -> None:
    assert redact(f"you said {said}!".encode(), BASIC, None).count(b"[redacted]") == 1
    assert said.encode() not in redact(f"you said {said}!".encode(), BASIC, None)


def test_without_a_credential_the_text_stays() -> None:
    assert redact(b"\xff\xfe", None, None) == b"\xff\xfe"
    assert redact(b"text", None, "http://proxy:1") == b"text"
