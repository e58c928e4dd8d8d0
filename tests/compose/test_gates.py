"""Nothing is applied before its gate opens: each need of each object keeps it away, is named, and lets it come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from functions.access import kubeconfig
from functions.access.client import Client
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import Controllers
from functions.local.certificates import Authority
from tests.compose import needs
from tests.compose.apart import objects_of, remove_all_but, wait_for
from tests.compose.needs import HELD, NAMESPACE, Needs
from tests.compose.stage import GATEWAY, GATEWAYS, step_of
from tests.support import CLUSTERS, CRDS, SECRETS, apply, crd_manifest, hold, open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from functions.compose.kinds import Kind
    from functions.compose.step import Composition, Step
    from functions.local.instance import ControlPlane

CLIENT_CA = Authority.new().certificate.decode()
SAYS = {
    "GatewayClass": ("Accepted", "its controller has not said anything yet"),
    "Certificate": ("Ready", "its controller has not said anything yet"),
}
"""Which condition makes an object ready, and what is said of one that its controller has not looked at."""
WITHHELD = "a client CA (no InferenceGateway has published a client CA)"


@pytest.fixture(scope="module")
def registered(hub_once: ControlPlane, away_once: ControlPlane) -> Iterator[None]:
    """`gpu-1` is registered on the Dynamo stack as long as this module runs, and what is composed for it stays."""
    before = objects_of(away_once.api)
    put_kubeconfig(hub_once.api, away_once.kubeconfig.read_bytes())
    put_cluster(hub_once.api, stack="Dynamo")
    yield
    hold(hub_once.api, f"{CLUSTERS}/gpu-1", None)
    for path in (f"{CLUSTERS}/gpu-1", f"{GATEWAYS}/eu", f"{SECRETS}/target"):
        hub_once.api.request("DELETE", path)
    remove_all_but(before, away_once.api)


@pytest.fixture
async def complete(registered: None, hub_once: ControlPlane, away_once: ControlPlane) -> AsyncIterator[Needs]:
    """Everything is composed and ready; the controllers that made it so are gone again."""
    assert registered is None
    world = await open_world(hub_once.kubeconfig)
    client = Client(kubeconfig.load_file(away_once.kubeconfig))
    stage = Needs(hub_once.api, world, away_once.api)
    stage.publish_ca(certificate=CLIENT_CA)
    await stage.judge()
    async with Controllers(client):
        await stage.settle()
    await client.close()
    yield stage
    await world.close()


async def waits(stage: Needs, composition: Composition, step: Step, cause: str, reason: str) -> None:
    """An object is not applied, and the condition of its set says why."""
    await stage.compose(composition)
    assert stage.live(step) is None
    condition = stage.condition(composition)
    assert (condition["status"], condition["reason"]) == ("False", reason), condition
    assert stage.waiting(composition)[str(step)] == cause, condition


async def comes(stage: Needs, composition: Composition, step: Step) -> None:
    """An object is applied, and nothing says any more that it waits."""
    await stage.compose(composition)
    assert stage.is_there(step), stage.condition(composition)
    assert str(step) not in stage.waiting(composition)


@pytest.mark.parametrize(("composition", "step", "key"), needs.COMPONENTS)
async def test_an_object_waits_for_each_component_of_its_gate(
    complete: Needs, composition: Composition, step: Step, key: str
) -> None:
    complete.remove(composition, step)
    for status in ("False", "Unknown", None):
        complete.judged(key, status)
        await waits(complete, composition, step, key, "WaitingForRequirements")
    await complete.judge()
    await comes(complete, composition, step)


@pytest.mark.parametrize(("composition", "step"), needs.APIS)
async def test_an_object_waits_for_its_own_api_whatever_the_conditions_say(
    complete: Needs, composition: Composition, step: Step
) -> None:
    complete.remove(composition, step)
    complete.serve(step.kind, served=False)
    try:
        cause = f"CRD {step.kind.definition} serving {step.kind.version}"
        await waits(complete, composition, step, cause, "WaitingForRequirements")
    finally:
        complete.serve(step.kind, served=True)
    await comes(complete, composition, step)


@pytest.mark.parametrize(("composition", "step", "key"), needs.APPLIED)
async def test_an_object_waits_for_each_that_has_to_be_applied_before(
    complete: Needs, composition: Composition, step: Step, key: str
) -> None:
    other = step_of(composition, key)
    complete.remove(composition, step)
    with complete.going(other):
        await waits(complete, composition, step, str(other), "WaitingForObject")
        said = f"{other}: is being deleted, held by finalizer {HELD}"
        assert said in complete.condition(composition)["message"]
    await comes(complete, composition, step)
    assert complete.is_there(other)


@pytest.mark.parametrize(("composition", "step", "key"), needs.READY)
async def test_an_object_waits_for_each_that_has_to_be_ready_before(
    complete: Needs, composition: Composition, step: Step, key: str
) -> None:
    other = step_of(composition, key)
    type_, silence = SAYS[other.kind.name]
    complete.remove(composition, step)
    for status, said in ((None, silence), ("False", f"{type_} is False, OutOfOrder: the test says so")):
        complete.say(other, type_, status)
        await waits(complete, composition, step, str(other), "WaitingForObject")
        assert f"{other}: {said}" in complete.condition(composition)["message"].split("; ")
    complete.say(other, type_, "True")
    await comes(complete, composition, step)


@pytest.mark.parametrize(("composition", "step", "key"), needs.DEFINED)
async def test_an_object_waits_until_its_definitions_are_established(
    complete: Needs, composition: Composition, step: Step, key: str
) -> None:
    other = step_of(composition, key)
    complete.remove(composition, step)
    names = complete.away.request("GET", other.path).body["spec"]["names"]
    complete.delete(other)
    rival = f"{CRDS}/rivals.modelexpress.nvidia.com"
    manifest = crd_manifest("rivals.modelexpress.nvidia.com", "v1")
    manifest["spec"]["names"]["shortNames"] = names["shortNames"]
    apply(complete.away, rival, manifest)
    wait_for(lambda: complete.is_established(rival), "the rival to have the short names")
    await waits(complete, composition, step, str(other), "WaitingForObject")
    assert (
        f"{other}: Established is False, NotAccepted: not all names are accepted"
        in (complete.condition(composition)["message"])
    )
    assert complete.away.request("DELETE", rival).status == 200
    wait_for(lambda: complete.is_established(other.path), "the definition to be established")
    await comes(complete, composition, step)


@pytest.mark.parametrize(("composition", "step"), needs.CLIENT_CAS)
async def test_an_object_waits_for_a_client_ca(complete: Needs, composition: Composition, step: Step) -> None:
    complete.remove(composition, step)
    complete.withdraw_ca()
    await waits(complete, composition, step, WITHHELD, "WaitingForClientCA")
    complete.publish_ca(certificate=CLIENT_CA)
    await comes(complete, composition, step)


@pytest.mark.parametrize(("composition", "step"), needs.CLIENT_CAS)
async def test_an_object_that_needs_a_client_ca_waits_where_the_hub_has_no_inference_gateways(
    complete: Needs, composition: Composition, step: Step
) -> None:
    complete.remove(composition, step)
    complete.without_inference_gateways()
    try:
        cause = "a client CA (the hub does not have the API InferenceGateway)"
        await waits(complete, composition, step, cause, "WaitingForClientCA")
    finally:
        complete.with_inference_gateways()
    complete.publish_ca(certificate=CLIENT_CA)
    await comes(complete, composition, step)


async def test_what_lives_in_the_namespace_waits_while_the_namespace_is_being_deleted(complete: Needs) -> None:
    namespace = step_of(GATEWAY, NAMESPACE)
    inhabitants = [each for each in GATEWAY.steps if NAMESPACE in each.after]
    for each in inhabitants:
        complete.remove(GATEWAY, each)
    with complete.going(namespace):
        for each in inhabitants:
            await waits(complete, GATEWAY, each, str(namespace), "WaitingForObject")
    for each in (namespace, *inhabitants):
        await comes(complete, GATEWAY, each)


async def test_what_a_controller_makes_of_an_object_is_waited_for_and_named(complete: Needs) -> None:
    bundle, config_map = (step_of(GATEWAY, f"{kind} modelplane-cluster-ca") for kind in ("Bundle", "ConfigMap"))
    complete.delete(config_map)
    await complete.compose(GATEWAY)
    assert complete.condition(GATEWAY)["reason"] == "WaitingForObject"
    assert complete.condition(GATEWAY)["message"] == f"{config_map}: its controller has not made it yet"
    complete.remove(GATEWAY, bundle)
    complete.judged("trust-manager", "False")
    await waits(complete, GATEWAY, bundle, "trust-manager", "WaitingForRequirements")
    assert complete.waiting(GATEWAY)[str(config_map)] == str(bundle)


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda each: each.name)
async def test_what_is_there_stays_and_is_kept_right_when_its_requirements_go(
    complete: Needs, composition: Composition
) -> None:
    own = [each for each in composition.steps if each.manifest is not None]
    before = {each.key: complete.live(each) for each in own}
    for key in {key for each in own for key in each.needs}:
        complete.judged(key, "False")
    for each in own:
        complete.unlabel(each)
    await complete.compose(composition)
    for each in own:
        was, found = before[each.key], complete.live(each)
        assert was is not None
        assert found is not None, each.key
        assert found["metadata"]["uid"] == was["metadata"]["uid"]
        assert found["metadata"]["labels"] == was["metadata"]["labels"]
    assert complete.condition(composition)["status"] == "True"


@pytest.mark.parametrize("kind", needs.CUSTOM_KINDS, ids=lambda each: each.name)
async def test_an_api_that_vanishes_is_a_closed_gate_and_all_is_applied_again_when_it_is_back(
    complete: Needs, kind: Kind
) -> None:
    composition, steps = needs.steps_of_kind(kind)
    others = [each for each in composition.steps if each.manifest is not None and each not in steps]
    manifest = complete.uninstall(kind)
    for _ in range(2):
        await complete.compose()
        condition = complete.condition(composition)
        assert (condition["status"], condition["reason"]) == ("False", "WaitingForRequirements"), condition
        cause = f"CRD {kind.definition} serving {kind.version}"
        assert complete.waiting(composition).items() >= dict.fromkeys(map(str, steps), cause).items()
        assert all(complete.is_there(each) for each in others)
    complete.reinstall(kind, manifest)
    await complete.compose()
    assert all(complete.is_there(each) for each in composition.steps if each.manifest is not None)
