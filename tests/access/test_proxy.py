from __future__ import annotations

import pytest

from functions.access.proxy import from_environment

PROXY = "http://proxy.example.com:3128"


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"HTTPS_PROXY": PROXY}, PROXY, id="https"),
        pytest.param({"https_proxy": PROXY}, PROXY, id="small letters"),
        pytest.param({"HTTPS_PROXY": PROXY, "https_proxy": "http://other"}, PROXY, id="capitals go first"),
        pytest.param({"HTTP_PROXY": PROXY}, None, id="for the other scheme"),
        pytest.param({"HTTPS_PROXY": "proxy.example.com:3128"}, PROXY, id="without a scheme"),
        pytest.param({"HTTPS_PROXY": ""}, None, id="empty"),
    ],
)
def test_the_proxy_of_a_server(environ: dict[str, str], proxy: str | None) -> None:
    assert from_environment("https://api.example.com:6443", environ) == proxy


@pytest.mark.parametrize(
    ("server", "no_proxy", "excepted"),
    [
        pytest.param("https://api.example.com", "*", True, id="everything"),
        pytest.param("https://api.example.com", "api.example.com", True, id="the host"),
        pytest.param("https://api.example.com", "example.com", True, id="its domain"),
        pytest.param("https://api.example.com", ".example.com", True, id="its domain with a dot"),
        pytest.param("https://example.com", ".example.com", False, id="a dot means what is below"),
        pytest.param("https://api.example.com", "ample.com", False, id="half a label"),
        pytest.param("https://api.example.com", "other.com, example.com ", True, id="one of several"),
        pytest.param("https://api.example.com:6443", "example.com:6443", True, id="with its port"),
        pytest.param("https://api.example.com:6443", "example.com:443", False, id="with another port"),
        pytest.param("https://api.example.com", "example.com:443", True, id="with the usual port"),
        pytest.param("https://10.1.2.3", "10.1.2.3", True, id="address"),
        pytest.param("https://10.1.2.3", "10.0.0.0/8", True, id="network"),
        pytest.param("https://11.1.2.3", "10.0.0.0/8", False, id="another network"),
        pytest.param("https://api.example.com", "10.0.0.0/8", False, id="a network and a name"),
        pytest.param("https://10.1.2.3", "10.0.0.0/99", False, id="no network"),
        pytest.param("https://[fd00::1]:6443", "fd00::1", True, id="IPv6"),
        pytest.param("https://[fd00::1]:6443", "[fd00::1]:6443", True, id="IPv6 with its port"),
        pytest.param("https://127.0.0.1:6443", "", True, id="loopback"),
        pytest.param("https://localhost:6443", "", True, id="localhost"),
        pytest.param("https://api.example.com", "", False, id="nothing excepted"),
    ],
)
def test_who_is_excepted(server: str, no_proxy: str, *, excepted: bool) -> None:
    found = from_environment(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy})
    assert (found is None) is excepted
