"""When an object is ready, and what is said of one that is not: whatever its status holds, nothing breaks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from functions.compose.readiness import (
    Unready,
    accepted_by_an_ancestor,
    address_of,
    available,
    condition,
    exists,
    has_address,
    holds_a_ca,
)
from functions.local.certificates import Authority

if TYPE_CHECKING:
    from functions.compose.readiness import Readiness

CREATED, SINCE = "2026-12-01T04:00:00Z", "2026-12-01T05:00:00Z"
SILENT = Unready("its controller has not said anything yet", CREATED)
BEHIND = Unready("its controller has not looked at generation 3 yet", CREATED)
RULES: dict[str, Readiness] = {
    "exists": exists,
    "condition": condition("Ready"),
    "has-address": has_address,
    "holds-a-ca": holds_a_ca,
    "accepted": accepted_by_an_ancestor,
    "available": available,
}


def found(status: Any = None, **more: Any) -> dict[str, Any]:
    """An object of generation 3 with this status; without one where it is None."""
    metadata = {"name": "x", "generation": 3, "creationTimestamp": CREATED}
    return {"metadata": metadata, **({} if status is None else {"status": status}), **more}


def said(type_: str, status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": type_, "status": status, "lastTransitionTime": SINCE, **more}


def test_what_has_no_controller_is_ready_when_it_is_there() -> None:
    assert exists(found()) is None


@pytest.mark.parametrize(
    ("conditions", "unready"),
    [
        pytest.param([said("Ready")], None, id="true"),
        pytest.param([said("Ready", observedGeneration=3)], None, id="true-for-this-generation"),
        pytest.param([said("Other", "False"), said("Ready")], None, id="true-among-others"),
        pytest.param([said("Ready", observedGeneration=2)], BEHIND, id="true-for-a-former-generation"),
        pytest.param([said("Ready", "False", observedGeneration=2)], BEHIND, id="false-for-a-former-generation"),
        pytest.param([said("Ready", "False")], Unready("Ready is False", SINCE), id="false"),
        pytest.param([said("Ready", "Unknown")], Unready("Ready is Unknown", SINCE), id="unknown"),
        pytest.param(
            [said("Ready", "False", reason="Pending", message="issuing\nit")],
            Unready("Ready is False, Pending: issuing it", SINCE),
            id="with-reason-and-message",
        ),
        pytest.param(
            [{"type": "Ready", "status": "False", "reason": "Pending"}],
            Unready("Ready is False, Pending", CREATED),
            id="without-time",
        ),
        pytest.param(
            [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "1970-01-01T00:00:00Z"}],
            SILENT,
            id="default-of-its-crd",
        ),
        pytest.param([said("Other")], SILENT, id="another"),
        pytest.param([], SILENT, id="none"),
        pytest.param(None, SILENT, id="null"),
    ],
)
def test_a_condition(conditions: Any, unready: Unready | None) -> None:
    assert condition("Ready")(found({"conditions": conditions})) == unready


def test_an_object_without_generation_is_taken_at_its_word() -> None:
    bare = {"metadata": {"name": "x", "creationTimestamp": CREATED}, "status": {"conditions": [said("Ready")]}}
    assert condition("Ready")(bare) is None


def test_what_a_controller_says_is_cut() -> None:
    unready = condition("Ready")(found({"conditions": [said("Ready", "False", message="x" * 100_000)]}))
    assert unready is not None
    assert len(unready.detail) < 2000


@pytest.mark.parametrize(
    ("status", "unready"),
    [
        pytest.param({"addresses": [{"value": "203.0.113.1"}]}, None, id="address"),
        pytest.param({"addresses": [{"value": ""}, {"value": "a.example"}]}, None, id="second-address"),
        pytest.param(
            {"addresses": [], "conditions": [said("Programmed", "False", reason="AddressNotAssigned")]},
            Unready("has no address (Programmed is False, AddressNotAssigned)", SINCE),
            id="not-programmed",
        ),
        pytest.param(
            {"conditions": [said("Programmed"), said("Accepted", "False", reason="Invalid")]},
            Unready("has no address (Accepted is False, Invalid)", SINCE),
            id="not-accepted",
        ),
        pytest.param(
            {"conditions": [said("Programmed"), said("Accepted")]}, Unready("has no address", CREATED), id="no"
        ),
        pytest.param({}, Unready(f"has no address ({SILENT.detail})", CREATED), id="silent"),
    ],
)
def test_a_gateway(status: dict[str, Any], unready: Unready | None) -> None:
    assert has_address(found(status)) == unready
    assert bool(address_of(found(status))) is (unready is None)


def ancestor(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"ancestorRef": {"name": "cluster-gateway"}, "conditions": list(conditions)}


@pytest.mark.parametrize(
    ("ancestors", "unready"),
    [
        pytest.param([ancestor(said("Accepted"))], None, id="accepted"),
        pytest.param([ancestor(said("Accepted", "False")), ancestor(said("Accepted"))], None, id="by-one-of-two"),
        pytest.param([ancestor(said("Accepted", observedGeneration=2))], BEHIND, id="former-generation"),
        pytest.param(
            [ancestor(said("Accepted", "False", reason="Conflicted"))],
            Unready("Accepted is False, Conflicted", SINCE),
            id="refused",
        ),
        pytest.param([ancestor()], SILENT, id="silent-ancestor"),
        pytest.param([], SILENT, id="no-ancestor"),
        pytest.param(None, SILENT, id="null"),
    ],
)
def test_a_policy(ancestors: Any, unready: Unready | None) -> None:
    assert accepted_by_an_ancestor(found({"ancestors": ancestors})) == unready


@pytest.mark.parametrize(
    ("status", "unready"),
    [
        pytest.param({"observedGeneration": 3, "conditions": [said("Available")]}, None, id="available"),
        pytest.param({"observedGeneration": 2, "conditions": [said("Available")]}, BEHIND, id="former-generation"),
        pytest.param({"conditions": [said("Available")]}, BEHIND, id="never-observed"),
        pytest.param({}, BEHIND, id="new"),
        pytest.param(None, SILENT, id="without-status"),
        pytest.param({"observedGeneration": 3}, SILENT, id="silent"),
        pytest.param(
            {"observedGeneration": 3, "conditions": [said("Available", "False", reason="MinimumReplicasUnavailable")]},
            Unready("Available is False, MinimumReplicasUnavailable", SINCE),
            id="unavailable",
        ),
    ],
)
def test_a_deployment(status: dict[str, Any] | None, unready: Unready | None) -> None:
    assert available(found(status)) == unready


@pytest.mark.parametrize("data", [None, {}, {"ca.crt": ""}, {"other": "x"}])
def test_a_config_map_without_the_certificate(data: dict[str, str] | None) -> None:
    unready = holds_a_ca(found(data=data))
    assert unready == Unready("trust-manager has not written ca.crt into it yet", CREATED)


def test_a_config_map_with_the_certificate() -> None:
    assert holds_a_ca(found(data={"ca.crt": Authority.new().certificate.decode()})) is None


@pytest.mark.parametrize("text", ["x", "\x00bad", "-----BEGIN CERTIFICATE-----\n", "<html>"])
def test_a_config_map_with_something_else(text: str) -> None:
    assert holds_a_ca(found(data={"ca.crt": text})) == Unready("its ca.crt holds no certificate", CREATED)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["True", "Ready", SINCE]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "status", "conditions", "ancestors", "addresses", "value", "observedGeneration"])
            | st.sampled_from(["lastTransitionTime", "reason", "message"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(status=values)
@example(status={"conditions": {"type": "Ready"}})
@example(status={"conditions": ["Ready", None, 7, {}], "ancestors": "x", "addresses": ["203.0.113.1", {"value": 7}]})
@example(status={"ancestors": [None, "x", {"conditions": "x"}], "observedGeneration": "3"})
@example(status={"conditions": [said("Ready", "False", lastTransitionTime="yesterday", reason=7, message=["x"])]})
@example(status={"conditions": [said("Ready", "False", lastTransitionTime=7, observedGeneration="x")]})
def test_whatever_a_status_holds_nothing_breaks(status: Any) -> None:
    for name, rule in RULES.items():
        unready = rule(found(status))
        if unready is not None:
            assert unready.detail.isprintable(), name
            assert datetime.fromisoformat(unready.since).tzinfo is not None, name
    assert isinstance(address_of(found(status)), str)
