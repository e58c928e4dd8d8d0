"""Triggers as the embedded broker uses them, read from the YAML that is also applied to a cluster.

`serving-stack dev` and the tests read `deploy/knative/base/triggers.yaml` with it. What the embedded broker would not
honour (an audience, a CESQL filter, an unknown key) is an error here, so that a Trigger never does less than it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from events.filters import InvalidFilter, compile_filters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from events.filters import Predicate

API_VERSION: Final = "eventing.knative.dev/v1"
BROKER_LABEL: Final = "eventing.knative.dev/broker"


class InvalidTrigger(ValueError):  # noqa: N818 - named for what the manifest is
    """A Trigger cannot be used; the text is one line that names the Trigger, the field and what is wrong."""


def _iso8601(value: object) -> object:
    if isinstance(value, str) and value.startswith("P"):
        return value
    raise ValueError("must be an ISO 8601 duration, such as PT0.2S")


Duration = Annotated[timedelta, BeforeValidator(_iso8601)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, extra="forbid", hide_input_in_errors=True)


class Reference(_Strict):
    """A Knative or plain Kubernetes Service."""

    api_version: Literal["serving.knative.dev/v1", "v1"]
    kind: Literal["Service"]
    name: str = Field(min_length=1)
    namespace: str | None = None


class Destination(_Strict):
    """Where a Trigger delivers to: a Service and a path on it, or an address.

    Attributes:
        ref: The Service; without one `uri` is a whole address.
        uri: A path such as `/probes/cert-manager`, or an http(s) URL.
    """

    ref: Reference | None = None
    uri: str = ""

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if self.ref is None and not self.uri.startswith(("http://", "https://")):
            raise ValueError("needs a ref, or an http(s) URL as uri")
        if self.ref is not None and self.uri and not self.uri.startswith("/"):
            raise ValueError("uri must be a path that starts with / where there is a ref")
        if "@" in urlsplit(self.uri).netloc:
            raise ValueError("uri must not hold a user or a password: the address shows up in dead letters")
        return self

    @property
    def path(self) -> str:
        """The path on the Service, at least `/`."""
        return self.uri or "/"


class Delivery(_Strict):
    """How a Trigger delivers, with Knative's meaning of a field that is left out.

    Attributes:
        retry: Tries after the first one.
        backoff_policy: Waits of `linear`: 0, 1, 2, ... times the delay; of `exponential`: 1, 2, 4, ... times.
        backoff_delay: The unit of those waits.
        timeout: Of one request; None leaves it to the broker.
        dead_letter_sink: Where an event goes that could not be delivered.
    """

    retry: int = Field(default=0, ge=0, le=1000, strict=True)
    backoff_policy: Literal["linear", "exponential"] = "exponential"
    backoff_delay: Duration = Field(default=timedelta(seconds=0.2), ge=timedelta(0))
    timeout: Duration | None = Field(default=None, gt=timedelta(0))
    dead_letter_sink: Destination | None = None

    def wait(self, retries: int) -> float:
        """Seconds to wait before the next try, after `retries` of them have failed."""
        factor = retries if self.backoff_policy == "linear" else 2.0**retries
        return self.backoff_delay.total_seconds() * factor


class _Filter(_Strict):
    attributes: dict[str, Any] | None = None


class _Spec(_Strict):
    broker: str = "default"
    filter: _Filter | None = None
    filters: list[Any] | None = None
    subscriber: Destination
    delivery: Delivery = Delivery()


class _Metadata(BaseModel):
    name: str = Field(min_length=1)
    labels: dict[str, str] = {}


class _Manifest(BaseModel):
    """Of what is not under spec, only this is read."""

    model_config = ConfigDict(alias_generator=to_camel, hide_input_in_errors=True)

    api_version: Literal["eventing.knative.dev/v1"]
    metadata: _Metadata
    spec: _Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One subscription to a broker.

    Attributes:
        name: Unique among the Triggers that were read together.
        broker: The broker's name.
        matches: Whether an event is to be delivered.
        subscriber: Where to.
        delivery: How.
    """

    name: str
    broker: str
    matches: Predicate
    subscriber: Destination
    delivery: Delivery


def read_triggers(text: str) -> tuple[Trigger, ...]:
    """Reads the Triggers out of YAML; documents of other kinds are passed over.

    Args:
        text: Any number of documents.

    Raises:
        InvalidTrigger: The YAML is broken or a Trigger is.
    """
    triggers: dict[str, Trigger] = {}
    for number, document in enumerate(_documents(text), start=1):
        if isinstance(document, dict) and document.get("kind") == "Trigger":
            trigger = _trigger(document, number)
            if trigger.name in triggers:
                raise InvalidTrigger(f"Trigger {trigger.name}: metadata.name: occurs twice")
            triggers[trigger.name] = trigger
    return tuple(triggers.values())


def _documents(text: str) -> Iterator[object]:
    try:
        yield from yaml.safe_load_all(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidTrigger(f"the Triggers are not valid YAML: line {line}: {error.problem}") from None
    except yaml.YAMLError:
        raise InvalidTrigger("the Triggers are not valid YAML") from None


def _trigger(document: dict[str, Any], number: int) -> Trigger:
    metadata = document.get("metadata")
    named = metadata.get("name") if isinstance(metadata, dict) else None
    title = f"Trigger {named}" if isinstance(named, str) and named else f"Trigger in document {number}"
    try:
        manifest = _Manifest.model_validate(document)
        spec = manifest.spec
        matches = compile_filters(spec.filters, spec.filter.attributes if spec.filter else None)
    except InvalidFilter as error:
        raise InvalidTrigger(f"{title}: spec.{error}") from None
    except ValidationError as error:
        raise InvalidTrigger(f"{title}: {_problem(error)}") from None
    label = manifest.metadata.labels.get(BROKER_LABEL, spec.broker)
    if label != spec.broker:
        raise InvalidTrigger(f"{title}: metadata.labels: {BROKER_LABEL} is {label}, but spec.broker is {spec.broker}")
    return Trigger(
        name=manifest.metadata.name,
        broker=spec.broker,
        matches=matches,
        subscriber=spec.subscriber,
        delivery=spec.delivery,
    )


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"{field}: is not supported by the embedded broker"
    return f"{field}: {first['msg'].removeprefix('Value error, ')}"
