"""Our own writing of the status told from everybody else's, by what a real API server notes of each."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from functions.watch.own_writes import MANAGERS, content, only_ours
from tests.support import CLUSTERS, get_cluster
from tests.watch.watching import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from functions.local.instance import ControlPlane

PATH = f"{CLUSTERS}/gpu-1"
MERGE = "application/merge-patch+json"


def metadata(hub: ControlPlane) -> dict[str, Any]:
    return dict(get_cluster(hub.api)["metadata"])


def write(hub: ControlPlane, manager: str, *conditions: str, status: str = "True", **further: Any) -> None:
    """Applies these conditions, and further fields of the status, as that manager's."""
    said = [
        {"type": each, "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-12-01T04:00:00Z"}
        for each in conditions
    ]
    body = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": "gpu-1"},
        "status": {"conditions": said, **further},
    }
    path = f"{PATH}/status?fieldManager={manager}&force=true"
    assert hub.api.request("PATCH", path, body, content_type="application/apply-patch+yaml").status == 200


def patch(hub: ControlPlane, body: dict[str, Any], path: str = PATH, manager: str = "somebody-else") -> None:
    answer = hub.api.request("PATCH", f"{path}?fieldManager={manager}", body, content_type=MERGE)
    assert answer.status == 200, answer


async def a_second() -> None:
    """Returns when the next write gets another time than the last one."""
    second = datetime.now(UTC).second
    await until(lambda: datetime.now(UTC).second != second, "the next second")


def test_every_manager_of_ours_is_known() -> None:
    assert set(MANAGERS) == {
        "modelplane-requirements",
        "modelplane-gateway",
        "modelplane-queues",
        "modelplane-modelexpress",
    }


@pytest.mark.parametrize("manager", MANAGERS)
async def test_our_own_writing_is_silent(api_hub: ControlPlane, manager: str) -> None:
    write(api_hub, next(each for each in MANAGERS if each != manager), "Other")
    states = [metadata(api_hub)]
    write(api_hub, manager, "Mine")
    states.append(metadata(api_hub))
    write(api_hub, manager, "Mine", status="False")
    states.append(metadata(api_hub))
    await a_second()
    write(api_hub, manager, "Mine", "AnotherOfMine", gateway={"address": "203.0.113.10"})
    states.append(metadata(api_hub))
    await a_second()
    write(api_hub, manager, "Mine")
    states.append(metadata(api_hub))
    contents = [content(each) for each in states]
    assert len({each["resourceVersion"] for each in states}) == len(states)
    assert [only_ours(before, after) for before, after in pairwise(contents)] == [True] * 4


def wipe(hub: ControlPlane, path: str) -> None:
    body: Any = [{"op": "remove", "path": path}]
    answer = hub.api.request("PATCH", f"{PATH}/status", body, content_type="application/json-patch+json")
    assert answer.status == 200, answer


def delete(hub: ControlPlane) -> None:
    assert hub.api.request("DELETE", PATH).status == 200


OTHERS: dict[str, Callable[[ControlPlane], None]] = {
    "annotation": lambda hub: patch(hub, {"metadata": {"annotations": {"example.com/a": "b"}}}),
    "label": lambda hub: patch(hub, {"metadata": {"labels": {"example.com/a": "b"}}}),
    "finalizer": lambda hub: patch(hub, {"metadata": {"finalizers": ["example.com/held"]}}),
    "deletion": delete,
    "spec": lambda hub: patch(hub, {"spec": {"cluster": {"existing": {"secretRef": {"name": "another"}}}}}),
    "spec-under-our-name": lambda hub: patch(
        hub, {"spec": {"cluster": {"existing": {"secretRef": {"name": "another"}}}}}, manager="modelplane-gateway"
    ),
    "condition-of-theirs": lambda hub: write(hub, "somebody-else", "Theirs"),
    "condition-of-ours": lambda hub: write(hub, "somebody-else", "Mine", status="False"),
    "some-of-ours-wiped": lambda hub: wipe(hub, "/status/conditions/1"),
    "all-of-ours-wiped": lambda hub: wipe(hub, "/status"),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("manager", [MANAGERS[0], MANAGERS[-1]])
def test_what_others_do_is_told(api_hub: ControlPlane, manager: str, change: Callable[[ControlPlane], None]) -> None:
    write(api_hub, manager, "Mine", "AnotherOfMine")
    patch(api_hub, {"metadata": {"finalizers": ["example.com/first"]}})
    before = content(metadata(api_hub))
    change(api_hub)
    after = content(metadata(api_hub))
    assert not only_ours(before, after)


def test_a_content_is_short_whatever_is_said_in_our_name(api_hub: ControlPlane) -> None:
    entry = {"manager": MANAGERS[0], "subresource": "status", "time": "t", "fieldsV1": {"f:status": {}}}
    many = {**metadata(api_hub), "managedFields": [{**entry, "apiVersion": f"v{number}"} for number in range(100)]}
    assert len(content(many)) < 200


def test_a_metadata_without_managed_fields_is_compared_all_the_same() -> None:
    one, other = {"name": "a", "resourceVersion": "1"}, {"name": "a", "resourceVersion": "2"}
    assert only_ours(content(one), content(other))
    assert not only_ours(content(one), content({**other, "labels": {"a": "b"}}))
