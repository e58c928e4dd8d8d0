"""The wire format: golden bytes, the round trip, and every malformed message that is known to arrive."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType

import orjson
import pytest
from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from pydantic import field_validator

from events import codec
from events.codec import (
    MAX_SIZE,
    STRUCTURED,
    Malformed,
    TooLarge,
    decode,
    encode_binary,
    encode_structured,
    is_plainly_valid,
    read,
)
from events.event import Event
from events.types import Data, ObjectReference, Provisioned

# As knative/eventing's adapter sends it for a cluster-scoped object.
CRD_ADDED = {
    "Host": "127.0.0.1:8080",
    "User-Agent": "Go-http-client/1.1",
    "Ce-Id": "7c9b6c2e-8f0a-4a1e-9d38-0f4f6f5b3a11",
    "Ce-Source": "https://10.96.0.1:443",
    "Ce-Specversion": "1.0",
    "Ce-Type": "dev.knative.apiserver.ref.add",
    "Ce-Subject": "/apis/apiextensions.k8s.io/v1/namespaces//customresourcedefinitions/issuers.cert-manager.io",
    "Ce-Time": "2026-12-01T04:00:00.123456789Z",
    "Ce-Kind": "CustomResourceDefinition",
    "Ce-Apiversion": "apiextensions.k8s.io/v1",
    "Ce-Name": "issuers.cert-manager.io",
    "Ce-Namespace": "",
    "Content-Type": "application/json",
    "Kn-Namespace": "modelplane-system",
    "Prefer": "reply",
}
CRD_ADDED_BODY = (
    b'{"kind":"CustomResourceDefinition","namespace":"","name":"issuers.cert-manager.io",'
    b'"apiVersion":"apiextensions.k8s.io/v1"}'
)
CRD_ADDED_EVENT = Event(
    id="7c9b6c2e-8f0a-4a1e-9d38-0f4f6f5b3a11",
    source="https://10.96.0.1:443",
    type="dev.knative.apiserver.ref.add",
    subject="/apis/apiextensions.k8s.io/v1/namespaces//customresourcedefinitions/issuers.cert-manager.io",
    time=datetime(2026, 12, 1, 4, 0, 0, 123456, UTC),
    datacontenttype="application/json",
    extensions={
        "kind": "CustomResourceDefinition",
        "apiversion": "apiextensions.k8s.io/v1",
        "name": "issuers.cert-manager.io",
        "namespace": "",
    },
    data=CRD_ADDED_BODY,
)
MINIMAL = {"ce-id": "1", "ce-source": "/here", "ce-type": "a.b", "ce-specversion": "1.0"}
MINIMAL_EVENT = Event(id="1", source="/here", type="a.b")
STRUCTURED_HEADERS = {"content-type": STRUCTURED}
MEMBERS = {"id": "1", "source": "/here", "type": "a.b", "specversion": "1.0"}


def without(headers: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key != name}


def structured(**members: object) -> bytes:
    return orjson.dumps({**MEMBERS, **members})


def test_a_binary_message_of_knative_is_read_whole() -> None:
    assert decode(CRD_ADDED, CRD_ADDED_BODY) == CRD_ADDED_EVENT


def test_a_binary_message_is_written_to_the_byte() -> None:
    event = replace(CRD_ADDED_EVENT, extensions={"cluster": 'gpu 1 "é" 100%', "namespace": ""})
    message = encode_binary(event)
    assert message.headers == {
        "ce-specversion": "1.0",
        "ce-id": "7c9b6c2e-8f0a-4a1e-9d38-0f4f6f5b3a11",
        "ce-source": "https://10.96.0.1:443",
        "ce-type": "dev.knative.apiserver.ref.add",
        "ce-subject": "/apis/apiextensions.k8s.io/v1/namespaces//customresourcedefinitions/issuers.cert-manager.io",
        "ce-time": "2026-12-01T04:00:00.123456Z",
        "ce-cluster": "gpu%201%20%22%C3%A9%22%20100%25",
        "ce-namespace": "",
        "content-type": "application/json",
    }
    assert message.body == CRD_ADDED_BODY


@pytest.mark.parametrize(
    ("event", "body"),
    [
        pytest.param(MINIMAL_EVENT, b'{"specversion":"1.0","id":"1","source":"/here","type":"a.b"}', id="no data"),
        pytest.param(
            replace(MINIMAL_EVENT, datacontenttype="application/json", data=b'{"a": 1.0}'),
            b'{"specversion":"1.0","id":"1","source":"/here","type":"a.b","datacontenttype":"application/json",'
            b'"data":{"a": 1.0}}',
            id="JSON",
        ),
        pytest.param(
            replace(MINIMAL_EVENT, datacontenttype="text/plain", data=b"hi"),
            b'{"specversion":"1.0","id":"1","source":"/here","type":"a.b","datacontenttype":"text/plain",'
            b'"data_base64":"aGk="}',
            id="text",
        ),
        pytest.param(
            replace(MINIMAL_EVENT, data=b"null"),
            b'{"specversion":"1.0","id":"1","source":"/here","type":"a.b","data_base64":"bnVsbA=="}',
            id="null as data",
        ),
    ],
)
def test_a_structured_message_is_written_to_the_byte(event: Event, body: bytes) -> None:
    message = encode_structured(event)
    assert (message.headers, message.body) == ({"content-type": "application/cloudevents+json"}, body)


@pytest.mark.parametrize(
    ("body", "event"),
    [
        pytest.param(structured(), MINIMAL_EVENT, id="no data"),
        pytest.param(structured(data={"a": [1]}), replace(MINIMAL_EVENT, data=b'{"a":[1]}'), id="JSON by default"),
        pytest.param(
            structured(data="x", datacontenttype="application/json"),
            replace(MINIMAL_EVENT, datacontenttype="application/json", data=b'"x"'),
            id="JSON string",
        ),
        pytest.param(
            structured(data="x", datacontenttype="text/plain"),
            replace(MINIMAL_EVENT, datacontenttype="text/plain", data=b"x"),
            id="text",
        ),
        pytest.param(structured(data_base64="/w=="), replace(MINIMAL_EVENT, data=b"\xff"), id="base64"),
        pytest.param(structured(data=None, subject=None), MINIMAL_EVENT, id="null is absent"),
        pytest.param(
            structured(flag=True, count=7, text=""),
            replace(MINIMAL_EVENT, extensions={"flag": "true", "count": "7", "text": ""}),
            id="extensions of other types",
        ),
    ],
)
def test_a_structured_message_is_read(body: bytes, event: Event) -> None:
    assert decode(STRUCTURED_HEADERS, body) == event


def test_a_structured_message_may_have_ce_headers_beside_it() -> None:
    headers = {"Content-Type": "Application/CloudEvents+JSON; charset=UTF-8", "Ce-Id": "other", "Ce-X-Y": "z"}
    assert decode(headers, structured()) == MINIMAL_EVENT


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8", "text/x+json"])
def test_json_data_stays_the_bytes_it_was(content_type: str) -> None:
    body = b'{ "b": 1.00,\n "a": 18446744073709551616 }'
    assert decode({**MINIMAL, "CONTENT-TYPE": content_type}, body).data == body


def test_data_of_another_type_is_not_looked_at() -> None:
    assert decode({**MINIMAL, "content-type": "text/plain"}, b"{\xff").data == b"{\xff"


def test_what_is_given_is_not_changed() -> None:
    headers, body = dict(CRD_ADDED), structured(data=[1])
    decode(headers, CRD_ADDED_BODY)
    event = replace(MINIMAL_EVENT, extensions={"a": "b"})
    encode_binary(event)
    encode_structured(event)
    assert headers == CRD_ADDED
    assert event == replace(MINIMAL_EVENT, extensions={"a": "b"})
    assert decode(STRUCTURED_HEADERS, body) == decode(STRUCTURED_HEADERS, body)


def test_extensions_of_a_decoded_event_are_read_only() -> None:
    assert isinstance(decode(CRD_ADDED, CRD_ADDED_BODY).extensions, MappingProxyType)


def test_a_time_with_an_offset_is_the_same_moment() -> None:
    event = decode({**MINIMAL, "ce-time": "2026-12-01t09:30:00+05:30"}, b"")
    assert event.time == datetime(2026, 12, 1, 4, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "body", "says"),
    [
        pytest.param({}, b"", "not a CloudEvent", id="nothing"),
        pytest.param({"Content-Type": "application/json"}, b"{}", "not a CloudEvent", id="ordinary POST"),
        pytest.param(without(MINIMAL, "ce-id"), b"", "attribute id is missing", id="no id"),
        pytest.param(without(MINIMAL, "ce-specversion"), b"", "specversion is missing", id="no specversion"),
        pytest.param(without(MINIMAL, "ce-source"), b"", "attribute source", id="no source"),
        pytest.param(without(MINIMAL, "ce-type"), b"", "attribute type", id="no type"),
        pytest.param({**MINIMAL, "ce-id": ""}, b"", "attribute id", id="empty id"),
        pytest.param({**MINIMAL, "ce-specversion": "0.3"}, b"", "must be '1.0'", id="old specversion"),
        pytest.param({**MINIMAL, "ce-subject": ""}, b"", "attribute subject", id="empty subject"),
        pytest.param({**MINIMAL, "ce-time": "yesterday"}, b"", "attribute time", id="no time"),
        pytest.param({**MINIMAL, "ce-time": "2026-12-01T04:00:00"}, b"", "attribute time", id="naive time"),
        pytest.param({**MINIMAL, "ce-time": "2026-13-01T04:00:00Z"}, b"", "attribute time", id="month 13"),
        pytest.param({**MINIMAL, "ce-time": "0001-01-01T00:00:00+14:00"}, b"", "attribute time", id="before year 1"),
        pytest.param(
            {**MINIMAL, "ce-time": "\N{ARABIC-INDIC DIGIT TWO}026-12-01T04:00:00Z"},
            b"",
            "attribute time",
            id="other digits",
        ),
        pytest.param({**MINIMAL, "ce-my_name": "x"}, b"", "my_name", id="extension name"),
        pytest.param({**MINIMAL, "ce-data": "x"}, b"", "attribute data", id="extension named data"),
        pytest.param({**MINIMAL, "ce-datacontenttype": "a/b"}, b"", "Content-Type says it", id="ce-datacontenttype"),
        pytest.param({**MINIMAL, "ce-x": "%ff"}, b"", "ce-x is not percent-encoded UTF-8", id="bad percent-encoding"),
        pytest.param({**MINIMAL, "ce-x": "a%0D%0Ab"}, b"", "attribute x holds control", id="encoded line break"),
        pytest.param({**MINIMAL, "ce-x": "\udcff"}, b"", "attribute x holds control", id="surrogate"),
        pytest.param({**MINIMAL, "content-type": "text/é"}, b"", "datacontenttype", id="content type not ASCII"),
        pytest.param({**MINIMAL, "content-type": ""}, b"", "datacontenttype", id="empty content type"),
        pytest.param({**MINIMAL, "content-type": "Application/JSON"}, b"{", "not valid JSON", id="broken JSON"),
        pytest.param({**MINIMAL, "content-type": "application/json"}, b"[" * 100_000, "not valid JSON", id="bomb"),
        pytest.param(CIMultiDict([*MINIMAL.items(), ("CE-ID", "2")]), b"", "ce-id occurs twice", id="attribute twice"),
        pytest.param(
            CIMultiDict([*MINIMAL.items(), ("content-type", "a/b"), ("Content-Type", "c/d")]),
            b"",
            "Content-Type occurs twice",
            id="content type twice",
        ),
        pytest.param(
            {"content-type": "application/cloudevents-batch+json"}, b"[]", "batch of events is not", id="batch"
        ),
        pytest.param({"content-type": "application/cloudevents+avro"}, b"", "format application/cl", id="Avro"),
        pytest.param(STRUCTURED_HEADERS, b"", "is not valid JSON", id="structured, empty"),
        pytest.param(STRUCTURED_HEADERS, b"[]", "not an object", id="structured, list"),
        pytest.param(STRUCTURED_HEADERS, b'{"a":' * 100_000, "is not valid JSON", id="structured, bomb"),
        pytest.param(
            STRUCTURED_HEADERS,
            structured().replace(b"}", b',"data":' + b"[" * 600 + b"]" * 600 + b"}"),
            "nested too deeply",
            id="structured, deep data",
        ),
        pytest.param(STRUCTURED_HEADERS, structured(id=None), "attribute id is missing", id="structured, no id"),
        pytest.param(STRUCTURED_HEADERS, structured(id=7), "id must be a string", id="structured, id a number"),
        pytest.param(STRUCTURED_HEADERS, structured(x=1.5), "x must be a string", id="structured, fraction"),
        pytest.param(STRUCTURED_HEADERS, structured(x={}), "x must be a string", id="structured, object"),
        pytest.param(STRUCTURED_HEADERS, orjson.dumps({**MEMBERS, "x\n": ""}), "x?", id="structured, name"),
        pytest.param(STRUCTURED_HEADERS, structured(data=1, data_base64="aGk="), "both", id="two kinds of data"),
        pytest.param(STRUCTURED_HEADERS, structured(data_base64="a*"), "not base64", id="not base64"),
        pytest.param(STRUCTURED_HEADERS, structured(data_base64="é"), "not base64", id="not even ASCII"),
        pytest.param(STRUCTURED_HEADERS, structured(data_base64=1), "not base64", id="base64 a number"),
        pytest.param(
            STRUCTURED_HEADERS, structured(datacontenttype="a/b\r\nx: y"), "datacontenttype", id="header injection"
        ),
    ],
)
def test_what_is_no_event_is_refused_in_one_line(headers: dict[str, str], body: bytes, says: str) -> None:
    with pytest.raises(Malformed) as refusal:
        decode(headers, body)
    assert says in str(refusal.value)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 400


def test_a_body_of_the_largest_size_is_read_and_one_byte_more_is_not() -> None:
    assert decode(MINIMAL, bytes(MAX_SIZE)).data == bytes(MAX_SIZE)
    with pytest.raises(TooLarge, match="1048577 bytes"):
        decode(MINIMAL, bytes(MAX_SIZE + 1))
    with pytest.raises(TooLarge):
        encode_binary(replace(MINIMAL_EVENT, data=bytes(MAX_SIZE + 1)))
    with pytest.raises(TooLarge):
        encode_structured(replace(MINIMAL_EVENT, datacontenttype="a/b", data=bytes(MAX_SIZE)))
    with pytest.raises(TooLarge):
        codec.check(replace(MINIMAL_EVENT, data=bytes(MAX_SIZE + 1)))


@pytest.mark.parametrize(
    ("event", "says"),
    [
        pytest.param(replace(MINIMAL_EVENT, id=""), "attribute id", id="empty id"),
        pytest.param(replace(MINIMAL_EVENT, subject=""), "attribute subject", id="empty subject"),
        pytest.param(replace(MINIMAL_EVENT, subject="a\r\nb"), "attribute subject holds control", id="line break"),
        pytest.param(replace(MINIMAL_EVENT, time=datetime(2026, 12, 1)), "time", id="naive time"),  # noqa: DTZ001
        pytest.param(replace(MINIMAL_EVENT, extensions={"A-b": "c"}), "A-b", id="extension name"),
        pytest.param(replace(MINIMAL_EVENT, extensions={"id": "c"}), "id is an attribute", id="extension named id"),
        pytest.param(replace(MINIMAL_EVENT, datacontenttype="a/b\r\nx: y"), "datacontenttype", id="header injection"),
        pytest.param(replace(MINIMAL_EVENT, datacontenttype="a/é"), "datacontenttype", id="content type not ASCII"),
    ],
)
def test_an_invalid_event_is_not_written(event: Event, says: str) -> None:
    for encode in (encode_binary, encode_structured, codec.check):
        with pytest.raises(Malformed, match=says):
            encode(event)


def test_data_that_is_not_the_json_it_claims_is_not_written_as_json() -> None:
    with pytest.raises(Malformed, match="not valid JSON"):
        encode_structured(replace(MINIMAL_EVENT, datacontenttype="application/json", data=b"{"))


text = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
names = st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True).filter(lambda name: name not in codec._CORE | {"data_base64"})
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
typed_data = (
    st.tuples(st.sampled_from(["application/json", "text/json; charset=utf-8"]), json_values.map(orjson.dumps))
    | st.tuples(st.just("application/octet-stream"), st.binary(min_size=1, max_size=50))
    | st.tuples(st.none(), st.none())
)
zones = st.timedeltas(timedelta(hours=-12), timedelta(hours=12)).map(timezone)


@st.composite
def events(draw: st.DrawFn) -> Event:
    content_type, data = draw(typed_data)
    return Event(
        id=draw(text),
        source=draw(text),
        type=draw(text),
        subject=draw(st.none() | text),
        time=draw(st.none() | st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)),  # noqa: DTZ001
        datacontenttype=content_type,
        dataschema=draw(st.none() | text),
        extensions=draw(st.dictionaries(names, st.just("") | text, max_size=4)),
        data=data,
    )


@given(event=events())
def test_binary_round_trip(event: Event) -> None:
    message = encode_binary(event)
    assert all(name.isascii() and value.isascii() and value.isprintable() for name, value in message.headers.items())
    assert decode(message.headers, message.body) == event


@given(event=events())
def test_structured_round_trip(event: Event) -> None:
    message = encode_structured(event)
    back = decode(message.headers, message.body)
    assert replace(back, data=None) == replace(event, data=None)
    if event.data is not None and "json" in (event.datacontenttype or ""):
        assert back.data is not None
        assert orjson.loads(back.data) == orjson.loads(event.data)
    else:
        assert back.data == event.data


@given(event=events())
def test_the_library_reads_what_is_written(event: Event) -> None:
    for message in (encode_binary(event), encode_structured(event)):
        theirs = http.from_http(http.HTTPMessage(message.headers, message.body), JSONFormat())
        assert (theirs.get_id(), theirs.get_source(), theirs.get_type()) == (event.id, event.source, event.type)
        assert theirs.get_subject() == event.subject
        assert event.time is None or theirs.get_time() == event.time
        assert {name: theirs.get_extension(name) for name in event.extensions} == event.extensions


@given(body=st.binary(max_size=200), headers=st.dictionaries(st.text(max_size=12), st.text(max_size=30), max_size=5))
def test_anything_is_an_event_or_malformed(body: bytes, headers: dict[str, str]) -> None:
    for sent in (headers, {**MINIMAL, **headers}, STRUCTURED_HEADERS, {**MINIMAL, "content-type": "application/json"}):
        try:
            event = decode(sent, body)
        except Malformed:
            continue
        codec.check(event)


class Login(Data):
    password: str

    @field_validator("password")
    @classmethod
    def _strong(cls, value: str) -> str:
        raise ValueError(f"{value} is too weak")


def data(content: bytes | None) -> Event:
    return replace(MINIMAL_EVENT, data=content)


def test_data_is_read_into_its_model() -> None:
    assert read(CRD_ADDED_EVENT, ObjectReference).name == "issuers.cert-manager.io"
    assert read(data(b'{"cluster":"gpu-1","later":"field"}'), Provisioned) == Provisioned(cluster="gpu-1")


@pytest.mark.parametrize(
    ("event", "says"),
    [
        pytest.param(data(None), "the whole: Invalid JSON", id="no data"),
        pytest.param(data(b"[]"), "the whole: ", id="a list"),
        pytest.param(data(b"hunter2"), "Invalid JSON", id="no JSON"),
        pytest.param(data(b'{"cluster": ""}'), "cluster: String should have at least 1 character", id="empty"),
        pytest.param(data(b'{"cluster": "a", "secretRef": {}}'), "secretRef.name: Field required", id="nested"),
        pytest.param(data(b'{"secretRef": "hunter2"}'), "cluster: Field required; secretRef: ", id="two problems"),
    ],
)
def test_data_that_does_not_fit_names_the_field_and_no_value(event: Event, says: str) -> None:
    with pytest.raises(Malformed) as refusal:
        read(event, Provisioned)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.__context__ is None


def test_many_problems_are_counted() -> None:
    class Many(Data):
        a: int
        b: int
        c: int
        d: int

    with pytest.raises(Malformed, match=r"c: Field required; and 1 more$"):
        read(data(b"{}"), Many)


def test_a_validators_own_text_is_not_passed_on() -> None:
    with pytest.raises(Malformed, match=r"password: is not valid$"):
        read(data(b'{"password": "hunter2"}'), Login)


def test_the_parsers_error_is_not_chained_because_it_holds_the_body() -> None:
    with pytest.raises(Malformed) as refusal:
        decode({**MINIMAL, "content-type": "application/json"}, base64.b64encode(b"secret"))
    assert refusal.value.__context__ is None


@given(
    attributes=st.dictionaries(
        st.sampled_from(["specversion", "id", "source", "type", "subject", "datacontenttype", "dataschema", "data"])
        | st.text(st.characters(codec="ascii"), max_size=3),
        st.sampled_from(["", "1.0", "x"]),
    ),
    time=st.none() | st.datetimes() | st.datetimes(timezones=st.just(UTC)),
)
def test_what_is_plainly_valid_is_valid_to_the_library(attributes: dict[str, str], time: datetime | None) -> None:
    attributes = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **attributes}
    if is_plainly_valid(attributes, time):
        CloudEvent({**attributes, **({} if time is None else {"time": time})})
