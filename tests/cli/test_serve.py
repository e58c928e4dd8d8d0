"""`serving-stack serve` as a container runs it, with the real functions and a hub that is not there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import orjson
import pytest

if TYPE_CHECKING:
    from pathlib import Path

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: hub
contexts: [{name: hub, context: {cluster: hub, user: hub}}]
clusters: [{name: hub, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: hub, user: {token: a-token}}]
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    return str(path)


def start(*options: str, **environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("K_", "PORT", "SERVING_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "functions", "serve", "--listen", "127.0.0.1", *options],
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_it_listens_on_port_and_answers(kubeconfig: str) -> None:
    port = free_port()
    with start("--functions", "cluster", PORT=str(port), SERVING_STACK_KUBECONFIG=kubeconfig) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if (fields := orjson.loads(line))["message"] == "listening":
                    assert fields["addresses"] == [f"127.0.0.1:{port}"]
                    assert fields["functions"] == ["cluster"]
                    break
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/health/readiness")
            assert connection.getresponse().status == 200
            connection.close()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("options", "environment", "text"),
    [
        pytest.param(["--functions", "cluster,nope"], {}, "unknown function nope; there are cluster, ", id="function"),
        pytest.param(["--functions", " , "], {}, "no function is named", id="no function"),
        pytest.param([], {"PORT": "http"}, "'http' is not a valid integer", id="port"),
        pytest.param([], {"K_SINK": "broker"}, "K_SINK is not an http(s) URL", id="sink"),
        pytest.param(["--kubeconfig", "/no/such/file"], {}, "does not exist", id="no kubeconfig"),
        pytest.param(["--kubeconfig", os.devnull], {}, "", id="empty kubeconfig"),
    ],
)
def test_a_wrong_setting_is_named(options: list[str], environment: dict[str, str], text: str) -> None:
    with start(*options, **environment) as process:
        _, errors = process.communicate()
    assert process.returncode == 2
    assert text in errors
    assert "Traceback" not in errors


def test_a_port_that_is_taken_is_named(kubeconfig: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with start("--kubeconfig", kubeconfig, PORT=str(port)) as process:
            _, errors = process.communicate()
    assert process.returncode == 2
    assert "address already in use" in errors
