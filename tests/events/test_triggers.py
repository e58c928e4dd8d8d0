"""Triggers out of YAML: what is read, and the name and field in every refusal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml

from events.event import Event
from events.triggers import Delivery, InvalidTrigger, read_triggers

TRIGGERS = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {name: requirements}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata:
  name: probes-cert-manager
  namespace: modelplane-system
  labels: {eventing.knative.dev/broker: requirements}
  annotations: {a: b}
spec:
  broker: requirements
  filters:
    - prefix: {type: dev.knative.apiserver.}
    - exact: {kind: CustomResourceDefinition}
  subscriber:
    ref: {apiVersion: serving.knative.dev/v1, kind: Service, name: probes, namespace: modelplane-system}
    uri: /probes/cert-manager
  delivery:
    retry: 5
    backoffPolicy: linear
    backoffDelay: PT0.2S
    timeout: PT25S
    deadLetterSink:
      ref: {apiVersion: serving.knative.dev/v1, kind: Service, name: probes}
      uri: /dead_letters
---
# nothing
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {name: plain}
spec:
  filter: {attributes: {type: a.b}}
  subscriber: {uri: "http://127.0.0.1:8080/x"}
"""


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": "t"},
        "spec": {"subscriber": {"uri": "http://127.0.0.1/"}, **spec},
    }


def test_triggers_are_read() -> None:
    probe, plain = read_triggers(TRIGGERS)
    assert (probe.name, probe.broker, probe.subscriber.path) == (
        "probes-cert-manager",
        "requirements",
        "/probes/cert-manager",
    )
    assert probe.subscriber.ref is not None
    assert (probe.subscriber.ref.name, probe.subscriber.ref.namespace) == ("probes", "modelplane-system")
    assert (probe.delivery.retry, probe.delivery.backoff_delay) == (5, timedelta(seconds=0.2))
    assert probe.delivery.timeout == timedelta(seconds=25)
    assert probe.delivery.dead_letter_sink is not None
    assert probe.delivery.dead_letter_sink.path == "/dead_letters"
    assert (plain.broker, plain.subscriber.uri, plain.delivery) == ("default", "http://127.0.0.1:8080/x", Delivery())


def test_the_filters_of_a_trigger_are_its_own() -> None:
    probe, plain = read_triggers(TRIGGERS)
    crd = Event(
        id="1", source="/", type="dev.knative.apiserver.ref.add", extensions={"kind": "CustomResourceDefinition"}
    )
    other = Event(id="1", source="/", type="a.b")
    assert [trigger.matches(event) for event in (crd, other) for trigger in (probe, plain)] == [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        pytest.param("linear", [0, 0.5, 1, 1.5], id="linear"),
        pytest.param("exponential", [0.5, 1, 2, 4], id="exponential"),
    ],
)
def test_waits(policy: str, waits: list[float]) -> None:
    delivery = Delivery.model_validate({"backoffPolicy": policy, "backoffDelay": "PT0.5S"})
    assert [delivery.wait(failed) for failed in range(4)] == waits


@pytest.mark.parametrize(
    ("document", "says"),
    [
        pytest.param(
            manifest(filters=[{"exact": {"namespace": ""}}]), "spec.filters[0].exact.namespace: is", id="filter"
        ),
        pytest.param(manifest(filter={"attributes": {"a": ""}}), "spec.filter.attributes.a: is empty", id="old filter"),
        pytest.param(manifest(filters={}), "spec.filters: ", id="filters no list"),
        pytest.param(manifest(filter={"type": "x"}), "spec.filter.type: is not supported", id="old filter, key"),
        pytest.param(manifest(delivery={"retries": 3}), "spec.delivery.retries: is not supported", id="unknown key"),
        pytest.param(manifest(brokerRef={"name": "x"}), "spec.brokerRef: is not supported", id="brokerRef"),
        pytest.param(manifest(delivery={"retry": -1}), "spec.delivery.retry: ", id="negative retry"),
        pytest.param(manifest(delivery={"retry": "3"}), "spec.delivery.retry: ", id="retry a text"),
        pytest.param(manifest(delivery={"backoffDelay": 2}), "spec.delivery.backoffDelay: must be an ISO", id="delay"),
        pytest.param(manifest(delivery={"backoffDelay": "P1X"}), "spec.delivery.backoffDelay: ", id="no duration"),
        pytest.param(manifest(delivery={"timeout": "PT0S"}), "spec.delivery.timeout: ", id="no time at all"),
        pytest.param(manifest(delivery={"backoffPolicy": "random"}), "spec.delivery.backoffPolicy: ", id="policy"),
        pytest.param(manifest(delivery={"deadLetterSink": {}}), "spec.delivery.deadLetterSink: needs a ref", id="sink"),
        pytest.param(manifest(subscriber={}), "spec.subscriber: needs a ref", id="no subscriber"),
        pytest.param(manifest(subscriber={"uri": "/x"}), "spec.subscriber: needs a ref", id="path without ref"),
        pytest.param(manifest(subscriber={"uri": "http://me:hunter2@x/"}), "must not hold a user", id="password"),
        pytest.param(
            manifest(subscriber={"ref": {"apiVersion": "v1", "kind": "Service", "name": "s"}, "uri": "x"}),
            "spec.subscriber: uri must be a path",
            id="uri no path",
        ),
        pytest.param(
            manifest(subscriber={"ref": {"apiVersion": "v1", "kind": "Pod", "name": "s"}}),
            "spec.subscriber.ref.kind: ",
            id="kind",
        ),
        pytest.param({**manifest(), "apiVersion": "eventing.knative.dev/v1beta1"}, "apiVersion: ", id="version"),
        pytest.param({**manifest(), "spec": None}, "spec: ", id="no spec"),
        pytest.param(
            {**manifest(), "metadata": {"name": "t", "labels": {"eventing.knative.dev/broker": "other"}}},
            "metadata.labels: eventing.knative.dev/broker is other, but spec.broker is default",
            id="label",
        ),
    ],
)
def test_a_refusal_names_trigger_and_field(document: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidTrigger) as refusal:
        read_triggers(yaml.safe_dump(document))
    assert str(refusal.value).startswith("Trigger t: ")
    assert says in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("kind: Trigger\nmetadata: [", "not valid YAML: line 2: ", id="broken YAML"),
        pytest.param("a: \x00", "not valid YAML", id="control character"),
        pytest.param("kind: Broker\n---\nkind: Trigger\n", "Trigger in document 2: apiVersion: ", id="no name"),
        pytest.param(
            TRIGGERS + "---" + TRIGGERS, "Trigger probes-cert-manager: metadata.name: occurs twice", id="twice"
        ),
    ],
)
def test_what_is_refused_as_a_whole(text: str, says: str) -> None:
    with pytest.raises(InvalidTrigger) as refusal:
        read_triggers(text)
    assert says in str(refusal.value)


def test_no_documents_are_no_triggers() -> None:
    assert read_triggers("") == ()
