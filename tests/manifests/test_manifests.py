"""What `kubectl apply -k` installs fits together, and fits what the functions declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from events.broker import Broker
from events.delivery import InProcess
from events.triggers import read_triggers
from functions.deploy_files import BROKER, NAMESPACE, deploy_directory
from functions.host.serve import _chosen
from functions.manifests.permissions import WATCH, hub_accounts
from functions.manifests.sources import KIND, source_accounts
from functions.manifests.triggers import DELIVERY
from functions.registry import FUNCTIONS
from functions.watch.object_events import guessed_plural
from functions.watch.source import HUB

if TYPE_CHECKING:
    from functions.local.instance import ControlPlane

KNATIVE = deploy_directory() / "knative"
BASE = KNATIVE / "base"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((BASE / name).read_text()))


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container.get("env", ())}


def container_of(service: dict[str, Any]) -> dict[str, Any]:
    (container,) = service["spec"]["template"]["spec"]["containers"]
    return dict(container)


SERVICES = {each["metadata"]["name"]: each for each in documents("services.yaml")}
SOURCES = documents("sources.yaml")
each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


@pytest.mark.parametrize("file", sorted(deploy_directory().rglob("kustomization.yaml")), ids=str)
def test_a_kustomization_names_what_is_there_and_leaves_nothing_out(file: Any) -> None:
    said = yaml.safe_load(file.read_text())
    for each in said["resources"]:
        assert (file.parent / each).exists(), each
    beside = {each.name for each in file.parent.glob("*.yaml")} - {"kustomization.yaml"}
    assert beside <= set(said["resources"])


def test_each_function_is_served_by_its_service() -> None:
    assert set(SERVICES) == {each.service for each in FUNCTIONS.values()}


@each_service
def test_a_service_serves_exactly_the_functions_that_name_it(service: dict[str, Any]) -> None:
    said = environment(container_of(service))
    served = _chosen(said["SERVING_STACK_FUNCTIONS"], records="SERVING_STACK_JOURNAL" in said)
    name = service["metadata"]["name"]
    assert {each.name for each in served} == {each.name for each in FUNCTIONS.values() if each.service == name}


@each_service
def test_a_service_runs_as_its_own_account_without_privileges(service: dict[str, Any]) -> None:
    assert service["spec"]["template"]["spec"]["serviceAccountName"] == service["metadata"]["name"]
    context = container_of(service)["securityContext"]
    assert context["runAsNonRoot"]
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}


@each_service
def test_what_records_has_one_replica_and_a_place_to_write_to(service: dict[str, Any]) -> None:
    journal = environment(container_of(service)).get("SERVING_STACK_JOURNAL")
    if journal is None:
        return
    annotations = service["spec"]["template"]["metadata"]["annotations"]
    assert {annotations[f"autoscaling.knative.dev/{each}-scale"] for each in ("min", "max")} == {"1"}
    (mount,) = container_of(service)["volumeMounts"]
    assert journal.startswith(f"{mount['mountPath']}/")


def test_triggers_and_broker_deliver_to_services_that_are_there() -> None:
    text = (BASE / "triggers.yaml").read_text()
    for each in read_triggers(text):
        assert each.broker == BROKER
        for destination in (each.subscriber, each.delivery.dead_letter_sink):
            assert destination is not None
            assert destination.ref is not None
            assert FUNCTIONS[destination.path.strip("/")].service == destination.ref.name in SERVICES
    (broker,) = documents("broker.yaml")
    assert broker["spec"]["delivery"] == DELIVERY


def test_the_embedded_broker_takes_the_same_triggers() -> None:
    async def nobody(*_: object) -> Any:
        raise AssertionError

    Broker(read_triggers((BASE / "triggers.yaml").read_text()), InProcess(nobody))


def test_each_source_has_an_account_and_there_is_no_other() -> None:
    given = {each["metadata"]["name"] for each in documents("permissions.yaml") if each["kind"] == "ServiceAccount"}
    taken = {each["spec"]["serviceAccountName"] for each in SOURCES if each["kind"] == KIND}
    assert given == set(SERVICES) | {WATCH} | taken
    assert set(hub_accounts(FUNCTIONS.values())) == set(SERVICES) | {WATCH}
    assert taken == set(source_accounts((BASE / "sources.yaml").read_text()))


@pytest.mark.parametrize(
    "source", [each for each in SOURCES if each["kind"] == KIND], ids=lambda each: each["metadata"]["name"]
)
def test_an_api_server_source_is_one_that_works(hub: ControlPlane, source: dict[str, Any]) -> None:
    """Reference mode, one kind whose plural Knative guesses right, events of one cluster in one partition."""
    spec = source["spec"]
    assert spec["mode"] == "Reference"
    (resource,) = spec["resources"]
    group_version = resource["apiVersion"]
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    served = hub.api.request("GET", root).body["resources"]
    assert guessed_plural(resource["kind"]) in {each["name"] for each in served if each["kind"] == resource["kind"]}
    assert spec["ceOverrides"]["extensions"]["partitionkey"]
    assert spec["sink"]["ref"]["name"] == BROKER


def test_between_them_the_sources_tell_of_the_hub_once() -> None:
    told = [each["spec"]["resources"][0]["kind"] for each in SOURCES if each["kind"] == KIND]
    (watch,) = [each for each in SOURCES if each["kind"] == "ContainerSource"]
    (container,) = watch["spec"]["template"]["spec"]["containers"]
    told += environment(container)["SERVING_STACK_HUB_KINDS"].split(",")
    assert sorted(told) == sorted({"CustomResourceDefinition", "DeviceClass", *(each.kind for each in HUB)})


def test_everything_is_in_our_namespace_or_says_where_else() -> None:
    elsewhere = {"modelplane-system", "default"}
    for file in BASE.glob("*.yaml"):
        for each in yaml.safe_load_all(file.read_text()):
            metadata = each.get("metadata", {})
            if "namespace" in metadata:
                assert metadata["namespace"] == NAMESPACE or (
                    each["kind"].startswith("Role") and metadata["namespace"] in elsewhere
                )
