"""What a pipeline outside the hub runs; `kubectl` is a stand-in, because nothing here has a node to forward from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from events import types
from events.codec import read
from tests.provisioning.examples import FOLDER
from tests.sink import listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.sink import Sink

SCRIPT = FOLDER / "pipeline" / "provisioned.sh"
# Answers as kubectl does, and takes a moment as it does.
KUBECTL = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$3" in
port-forward)
  test -z "${REFUSED:-}" || { echo "Error from server (Forbidden)" >&2; exit 1; }
  echo $$ >"$CALLS.pid"
  sleep 0.2
  echo "Forwarding from 127.0.0.1:$PORT -> 8080"
  echo "Forwarding from [::1]:$PORT -> 8080"
  exec sleep 60
  ;;
create) echo the-token ;;
esac
"""


@pytest.fixture
def sink() -> Iterator[Sink]:
    with listening() as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, sink: Sink) -> Callable[..., subprocess.CompletedProcess[str]]:
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    (tmp_path / "tmp").mkdir()

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{kubectl.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        settings = {"PATH": path, "TMPDIR": str(tmp_path / "tmp"), "CALLS": str(tmp_path / "calls")}
        settings |= {"PORT": str(sink.server_port)} | environment
        return subprocess.run(
            ["sh", SCRIPT], env=os.environ | settings, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def test_the_broker_hears_of_the_cluster(
    run: Callable[..., subprocess.CompletedProcess[str]], sink: Sink, tmp_path: Path, wait_gone: Callable[[int], None]
) -> None:
    done = run(CLUSTER="gpu-1", SECRET="gpu-1/config")
    assert done.returncode == 0, done.stderr
    (event,) = sink.took
    assert (event.type, event.subject, event.source) == (types.PROVISIONED, "gpu-1", "/provisioning/pipeline")
    reference = types.SecretReference(name="gpu-1", key="config")
    assert read(event, types.Provisioned) == types.Provisioned(cluster="gpu-1", secret_ref=reference)
    assert sink.shown == [None]
    wait_gone(int((tmp_path / "calls.pid").read_text()))
    assert (tmp_path / "calls").read_text() == "--namespace knative-eventing port-forward service/broker-ingress :80\n"


def test_a_broker_that_authenticates_is_shown_a_token_that_is_not_left_behind(
    run: Callable[..., subprocess.CompletedProcess[str]], sink: Sink, tmp_path: Path
) -> None:
    done = run(CLUSTER="gpu-1", OIDC="1")
    assert done.returncode == 0, done.stderr
    assert sink.shown == ["Bearer the-token"]
    assert "the-token" not in done.stdout + done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    assert "eventing.knative.dev/broker/modelplane-serving-stack/serving-stack" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"CLUSTER": "../x"}, "no name"),
        ({"CLUSTER": "--help; touch pwned"}, "no name"),
        ({"CLUSTER": "gpu-1", "REFUSED": "1"}, "Forbidden"),
        ({"CLUSTER": "gpu-1", "PORT": "1"}, "127.0.0.1:1"),
        ({}, "CLUSTER"),
    ],
    ids=["a path", "an option", "kubectl is refused", "nobody listens", "no cluster"],
)
def test_what_goes_wrong_fails_the_pipeline(
    run: Callable[..., subprocess.CompletedProcess[str]], sink: Sink, environment: dict[str, str], said: str
) -> None:
    done = run(**environment)
    assert done.returncode != 0
    assert said in done.stderr
    assert sink.took == []
