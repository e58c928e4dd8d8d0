"""`serving-stack watch` as a ContainerSource runs it: a process of its own, with K_SINK."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from time import sleep
from typing import TYPE_CHECKING

import pytest

from events import types
from functions.catalog import CustomResource
from functions.watch.shards import Shard
from tests.sink import Sink, listening
from tests.support import provide, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from events.event import Event
    from functions.local.instance import ControlPlane

CRD = CustomResource("inferencepools.inference.networking.k8s.io", "v1")


@pytest.fixture
def sink() -> Iterator[Sink]:
    with listening() as server:
        yield server


@contextmanager
def watching(hub: ControlPlane, sink: Sink, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "functions", "watch", "--kubeconfig", str(hub.kubeconfig), *options]
    environment = {**os.environ, "K_SINK": sink.url, "K_CE_OVERRIDES": '{"extensions":{"origin":"test"}}'}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def asks_of(cluster: str) -> tuple[str, str]:
    return types.CHECK_REQUESTED, cluster


def is_about(event: Event, type_: str, subject: str) -> bool:
    return (event.type, event.subject) == (type_, subject)


def until_it_watches(hub: ControlPlane, sink: Sink) -> None:
    """Returns once definitions of the target are told: those that were there at the first list are not."""
    for number in range(60):
        name = f"probe{number}s.tests.example.com"
        provide(hub.api, CustomResource(name, "v1"))
        for _ in range(10):
            if any(each.extensions.get("name") == name for each in sink.took if "cluster" in each.extensions):
                return
            sleep(0.05)
    pytest.fail("the target is not watched")


def test_what_happens_on_a_target_reaches_the_sink(hub: ControlPlane, sink: Sink) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    with watching(hub, sink) as process:
        put_cluster(hub.api)  # while it runs
        sink.until(lambda each: is_about(each, *asks_of("gpu-1")))
        until_it_watches(hub, sink)
        provide(hub.api, CRD)
        seen = sink.until(lambda each: each.type == types.OBJECT_ADDED and each.extensions.get("name") == CRD.name)
        assert seen.extensions["cluster"] == "gpu-1"
        assert seen.extensions["origin"] == "test"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert '"ended"' in process.stderr.read()


def test_what_another_source_tells_of_the_hub_is_left_out(hub: ControlPlane, sink: Sink) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    with watching(hub, sink, "--hub-kinds", "InferenceGateway"):
        put_cluster(hub.api)
        sink.until(lambda each: is_about(each, *asks_of("gpu-1")))
        hub.api.apply(
            "/apis/modelplane.ai/v1alpha1/inferencegateways/eu",
            {
                "apiVersion": "modelplane.ai/v1alpha1",
                "kind": "InferenceGateway",
                "metadata": {"name": "eu"},
                "spec": {"clusterName": "gpu-1"},
            },
        )
        sink.until(lambda each: each.extensions.get("kind") == "InferenceGateway")
        hub_kinds = {each.extensions.get("kind") for each in sink.took if "cluster" not in each.extensions}
        assert hub_kinds == {"InferenceGateway"}


def test_each_target_is_watched_by_one_of_several_sources(hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    names = [f"gpu-{number}" for number in range(6)]
    shards = [Shard(number, 2) for number in range(2)]
    for each in names:
        put_cluster(hub.api, each)
    with listening() as first, listening() as second:
        sinks = (first, second)
        with watching(hub, first, "--shard", "0/2"), watching(hub, second, "--shard", "1/2"):
            for shard, sink in zip(shards, sinks, strict=True):
                for name in filter(shard.follows, names):
                    sink.until(lambda each, name=name: is_about(each, *asks_of(name)))  # type: ignore[misc]
            asked = [{each.subject for each in sink.took if each.type == types.CHECK_REQUESTED} for sink in sinks]
    assert asked == [set(filter(each.follows, names)) for each in shards]
    assert asked[0].isdisjoint(asked[1])
    assert all(asked)
    told_of_hub = [
        {each.extensions.get("kind") for each in sink.took if "cluster" not in each.extensions} for sink in sinks
    ]
    assert told_of_hub[1] == set()


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "a/b", "0/0", "1/2/3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write such as 0/3"):
        Shard.parse(text)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--shard", "3/2"], "--shard"),
        (["--hub-kinds", "Pod"], "InferenceCluster, InferenceGateway, Secret"),
        ([], "K_SINK"),
    ],
)
def test_a_wrong_use_says_what_is_wrong(kubeconfig: Path, options: list[str], wrong: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("K_")}
    command = [sys.executable, "-m", "functions", "watch", "--kubeconfig", str(kubeconfig), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 2
    assert wrong in done.stderr
