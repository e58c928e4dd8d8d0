from __future__ import annotations

from dataclasses import replace

import pytest

from functions.catalog import Stack, component
from functions.conditions import MAX_DETAIL, MAX_MESSAGE, Condition, Status, checked_components, merge

NOW, EARLIER = "2026-12-01T04:00:00Z", "2026-12-01T03:00:00Z"


def judged(key: str, status: Status, reason: str = "Provided", message: str = "") -> Condition:
    return Condition(
        type=component(key).condition, status=status, reason=reason, message=message, observed_generation=2
    )


def all_met(stack: Stack = Stack.STANDARD) -> list[Condition]:
    return [judged(each.key, Status.TRUE) for each in checked_components(stack)]


def summary(judged_now: list[Condition], stack: Stack = Stack.STANDARD) -> Condition:
    return merge({}, judged_now, stack=stack, generation=2, now=NOW)[0]


UNREACHABLE = "https://10.0.0.1:6443 did not answer within 5 s"


def with_(*changed: Condition) -> list[Condition]:
    by_type = {each.type: each for each in all_met()} | {each.type: each for each in changed}
    return list(by_type.values())


@pytest.mark.parametrize(
    ("found", "status", "reason", "message"),
    [
        pytest.param(all_met(), Status.TRUE, "RequirementsMet", "", id="all met"),
        pytest.param(
            with_(
                judged("trust-manager", Status.FALSE, "NotInstalled", "CRD b: not installed"),
                judged("cert-manager", Status.FALSE, "NotInstalled", "CRD c: not installed"),
            ),
            Status.FALSE,
            "MissingRequirements",
            "The cluster is missing: cert-manager (CRD c: not installed); trust-manager (CRD b: not installed)",
            id="missing ones in catalog order",
        ),
        pytest.param(
            with_(
                judged("cert-manager", Status.UNKNOWN, "Forbidden", "no right to get customresourcedefinitions"),
                judged("trust-manager", Status.FALSE, "NotInstalled", "CRD b: not installed"),
            ),
            Status.FALSE,
            "MissingRequirements",
            "The cluster is missing: trust-manager (CRD b: not installed). "
            "Cannot tell: cert-manager (no right to get customresourcedefinitions)",
            id="a miss outweighs what cannot be told, and both are named",
        ),
        pytest.param(
            [
                judged(each.key, Status.UNKNOWN, "Unreachable", UNREACHABLE)
                for each in checked_components(Stack.STANDARD)
            ],
            Status.UNKNOWN,
            "Unreachable",
            f"Cannot tell: {UNREACHABLE}",
            id="a dead cluster is said once",
        ),
        pytest.param(
            all_met()[:-1], Status.FALSE, "Checking", "Not judged yet: leader-worker-set", id="one not judged yet"
        ),
        pytest.param(
            [judged("cert-manager", Status.UNKNOWN, "Stale", "dead APIService")],
            Status.UNKNOWN,
            "Stale",
            "Cannot tell: cert-manager (dead APIService)",
            id="unknown outweighs not judged yet",
        ),
    ],
)
def test_summary(found: list[Condition], status: Status, reason: str, message: str) -> None:
    condition = summary(found)
    assert (condition.status, condition.reason, condition.message) == (status, reason, message)
    assert condition.observed_generation == 2


def test_each_stack_has_its_own_components() -> None:
    standard = {each.type for each in merge({}, all_met(), stack=Stack.STANDARD, generation=1, now=NOW)}
    dynamo = {each.type for each in merge({}, all_met(Stack.DYNAMO), stack=Stack.DYNAMO, generation=1, now=NOW)}
    assert standard - dynamo == {"LeaderWorkerSetProvided"}
    assert dynamo - standard == {"GroveProvided", "KaiSchedulerProvided"}


def test_transition_time_moves_only_when_the_status_flips() -> None:
    before = {each.type: each for each in merge({}, all_met(), stack=Stack.STANDARD, generation=1, now=EARLIER)}
    missing = judged("cert-manager", Status.FALSE, "NotInstalled", "CRD c: not installed")
    after = {each.type: each for each in merge(before, [missing], stack=Stack.STANDARD, generation=2, now=NOW)}
    assert after["CertManagerProvided"].last_transition_time == NOW
    assert after["RequirementsMet"].last_transition_time == NOW
    assert after["TrustManagerProvided"].last_transition_time == EARLIER

    other_words = replace(missing, message="CRD c: being deleted")
    later = {each.type: each for each in merge(after, [other_words], stack=Stack.STANDARD, generation=2, now="later")}
    assert later["CertManagerProvided"].last_transition_time == NOW
    assert later["CertManagerProvided"].message == "CRD c: being deleted"


def test_conditions_of_others_are_left_to_them() -> None:
    ready = Condition(type="Ready", status=Status.TRUE, reason="Available", last_transition_time=EARLIER)
    merged = merge({"Ready": ready}, all_met(), stack=Stack.STANDARD, generation=1, now=NOW)
    assert "Ready" not in {each.type for each in merged}


def test_a_message_is_cut_where_kubernetes_would_refuse_it() -> None:
    long = judged("cert-manager", Status.FALSE, "NotInstalled", "x" * (MAX_MESSAGE + 1))
    for condition in merge({}, [long], stack=Stack.STANDARD, generation=1, now=NOW):
        assert len(condition.message) <= MAX_MESSAGE


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\n", "\x7f", "\x85", "\u2028", "\ufffe", "\ud800"])
def test_what_could_steer_a_terminal_or_is_refused_becomes_a_space(character: str) -> None:
    found = [judged("cert-manager", Status.FALSE, "NotEstablished", f"a{character}b")]
    for condition in merge({}, found, stack=Stack.STANDARD, generation=1, now=NOW):
        assert "a b" in condition.message


def test_a_component_says_only_so_much() -> None:
    long = judged("cert-manager", Status.FALSE, "NotInstalled", "x" * 100_000)
    summary_, component_ = merge({}, [long], stack=Stack.STANDARD, generation=1, now=NOW)
    assert len(component_.message) == MAX_DETAIL
    assert len(summary_.message) < 2 * MAX_DETAIL


@pytest.mark.parametrize("reason", ["", "no word", "x" * 2000, "A\n"])
def test_a_reason_that_kubernetes_would_refuse(reason: str) -> None:
    found = [judged("cert-manager", Status.FALSE, reason, "m")]
    assert merge({}, found, stack=Stack.STANDARD, generation=1, now=NOW)[1].reason == "Other"


def test_the_json_form_is_read_back() -> None:
    condition = replace(judged("cert-manager", Status.FALSE, "NotInstalled", "gone"), last_transition_time=NOW)
    assert Condition.from_object(condition.to_object()) == condition


def test_a_foreign_status_reads_as_unknown() -> None:
    assert Condition.from_object({"type": "X", "status": "Perhaps"}).status is Status.UNKNOWN
