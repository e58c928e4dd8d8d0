"""What the sets declare, against a table that states it anew: every object, its gate, its exact fields, its names."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from events import types
from functions.catalog import Stack, component
from functions.clusters import OUR_FINALIZERS
from functions.compose.client_cas import ClientCAs
from functions.compose.function import composing
from functions.compose.ownership import marked
from functions.compose.sets import COMPOSITIONS
from functions.compose.step import Inputs
from functions.conditions import checked_components
from tests.compose.stage import GATEWAY, MODELEXPRESS, step_of
from tests.compose.table import DEFINITIONS, HOSTNAME, MADE_BY_OTHERS, TABLE, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from functions.compose.step import Composition, Step
    from functions.function import Function

INPUTS = Inputs(cluster="byo-provided", uid="0b5c", client_cas=ClientCAs("a certificate\n"))
OWNER_LABEL = "modelplane.ai/inference-cluster"
OWNER_ANNOTATION = "modelplane.ai/inference-cluster-uid"
LONGEST = ".".join([*["a" * 63] * 3, "a" * 61])
"""As long as the name of an InferenceCluster can be."""
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SETS = {each.name: each for each in COMPOSITIONS}

EVERY_STEP = [
    pytest.param(composition, step, id=step.key) for composition in COMPOSITIONS for step in composition.steps
]
OWN_STEPS = [
    pytest.param(step, id=step.key)
    for composition in COMPOSITIONS
    for step in composition.steps
    if step.manifest is not None
]


def key_of(row: Row) -> str:
    return f"{row.api.rpartition(' ')[2]} {row.where.rpartition('/')[2]}"


ROWS = [(name, row) for name, rows in TABLE.items() for row in rows]
OWN_ROWS = [(name, row) for name, row in ROWS if key_of(row) not in MADE_BY_OTHERS]
WITH_CONTENT = [(name, row) for name, row in OWN_ROWS if row.content is not None]


def rows(those: list[tuple[str, Row]]) -> pytest.MarkDecorator:
    """A case for each of the rows."""
    return pytest.mark.parametrize(("name", "row"), [pytest.param(*each, id=key_of(each[1])) for each in those])


def inputs_of(cluster: str) -> Inputs:
    return dataclasses.replace(INPUTS, cluster=cluster)


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda each: each.name)
def test_keys_are_unique_within_a_set(composition: Composition) -> None:
    keys = [each.key for each in composition.steps]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("composition", "step"), EVERY_STEP)
def test_what_an_object_rests_on_comes_before_it_in_its_set(composition: Composition, step: Step) -> None:
    before = [each.key for each in composition.steps[: composition.steps.index(step)]]
    assert set(step.after) <= set(before)
    assert set(step.awaits) <= set(before)


@pytest.mark.parametrize(("composition", "step"), EVERY_STEP)
def test_every_need_is_a_component_of_every_stack_of_the_set_and_has_a_condition(
    composition: Composition, step: Step
) -> None:
    for key in step.needs:
        assert composition.stacks <= component(key).stacks
        for stack in composition.stacks:
            assert component(key) in checked_components(stack)


@pytest.mark.parametrize(("composition", "step"), EVERY_STEP)
def test_who_makes_what_is_not_ours_is_an_object_of_the_set(composition: Composition, step: Step) -> None:
    if step.made_for:
        assert step.manifest is None
        assert step_of(composition, step.made_for).manifest is not None


@pytest.mark.parametrize("step", OWN_STEPS)
def test_no_object_of_a_custom_kind_goes_without_a_component(step: Step) -> None:
    assert step.kind.built_in or step.needs


@pytest.mark.parametrize("name", TABLE)
def test_a_set_holds_the_objects_of_the_table_and_no_others(name: str) -> None:
    assert {each.key for each in SETS[name].steps} == {key_of(row) for row in TABLE[name]} | (
        MADE_BY_OTHERS if name == "gateway" else set()
    )
    assert {each.key for each in SETS[name].steps if each.manifest is None} == (
        MADE_BY_OTHERS if name == "gateway" else set()
    )


@rows(ROWS)
def test_an_object_is_where_the_table_has_it_behind_the_gate_that_the_table_has(name: str, row: Row) -> None:
    composition = SETS[name]
    step = step_of(composition, key_of(row))
    api_version, _, kind = row.api.partition(" ")
    namespace, _, object_name = row.where.rpartition("/")
    assert (step.kind.api_version, step.kind.name) == (api_version, kind)
    assert (step.namespace, step.name) == (namespace, object_name)
    assert {str(each) for each in composition.stacks} == row.stacks
    assert step.needs == row.needs
    assert set(step.after) == row.applied
    assert set(step.awaits) == row.ready
    assert step.client_ca == row.client_ca


@rows(WITH_CONTENT)
def test_an_object_has_exactly_the_fields_of_the_table(name: str, row: Row) -> None:
    made = marked(step_of(SETS[name], key_of(row)), INPUTS)
    content = {key: value for key, value in made.items() if key not in {"apiVersion", "kind", "metadata"}}
    assert content == row.content


@rows(OWN_ROWS)
def test_an_object_carries_fixed_labels_and_the_owner_mark_and_nothing_else(name: str, row: Row) -> None:
    step = step_of(SETS[name], key_of(row))
    metadata = dict(marked(step, INPUTS)["metadata"])
    assert metadata.pop("name") == step.name
    assert metadata.pop("namespace", "") == step.namespace
    assert metadata.pop("labels") == {**row.labels, OWNER_LABEL: "byo-provided"}
    assert metadata.pop("annotations") == {OWNER_ANNOTATION: "0b5c"}
    assert not metadata


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_a_definition_of_modelexpress_is_the_one_of_the_table(plural: str) -> None:
    wanted = DEFINITIONS[plural]
    spec = marked(step_of(MODELEXPRESS, f"CustomResourceDefinition {plural}.modelexpress.nvidia.com"), INPUTS)["spec"]
    (version,) = spec["versions"]
    assert (spec["group"], spec["scope"]) == ("modelexpress.nvidia.com", "Namespaced")
    assert spec["names"] == {
        "kind": wanted.kind,
        "listKind": f"{wanted.kind}List",
        "plural": plural,
        "singular": wanted.kind.lower(),
        "shortNames": wanted.short,
    }
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"] == {"status": {}}
    assert [each["name"] for each in version["additionalPrinterColumns"]] == wanted.columns
    assert dict(fields(version["schema"]["openAPIV3Schema"])) == wanted.schema


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a schema in the way of the table."""
    for name, each in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        below = each.get("items", each)
        if "properties" in below:
            yield from fields(below, f"{here}[]" if each is not below else here)
        else:
            default = f"={each['default']}" if "default" in each else ""
            required = "*" if name in schema.get("required", ()) else ""
            yield here, "|".join(each.get("enum", [each["type"]])) + default + required


@pytest.mark.parametrize(
    ("cluster", "hostname"),
    [
        ("byo-provided", HOSTNAME),
        ("eu.example", "gateway-eu-example-ad4f6.modelplane-system.svc.cluster.local"),
        ("eu-example", "gateway-eu-example-1a2b0.modelplane-system.svc.cluster.local"),
    ],
)
def test_the_host_name_of_a_gateway_is_the_one_that_modelplane_derives(cluster: str, hostname: str) -> None:
    assert inputs_of(cluster).hostname == hostname


@pytest.mark.parametrize("cluster", ["a", LONGEST, "a" * 253, "a" * 49 + "." + "b" * 60], ids=len)
def test_names_and_labels_stay_within_their_limits(cluster: str) -> None:
    inputs = inputs_of(cluster)
    assert len(inputs.hostname) <= 253
    assert all(DNS_LABEL.fullmatch(each) for each in inputs.hostname.split("."))
    for step in (each for one in COMPOSITIONS for each in one.steps if each.manifest is not None):
        made = marked(step, inputs)
        for value in made["metadata"]["labels"].values():
            assert LABEL_VALUE.fullmatch(value), (step.key, value)
        assert len(made.get("spec", {}).get("commonName", "")) <= 64


def test_clusters_whose_names_are_cut_are_told_apart() -> None:
    one, other = inputs_of("a" * 252 + "b"), inputs_of("a" * 252 + "c")
    assert one.hostname != other.hostname
    labels = {marked(GATEWAY.steps[0], each)["metadata"]["labels"][OWNER_LABEL] for each in (one, other)}
    assert len(labels) == 2


def test_an_object_is_made_from_the_clusters_name_and_uid_and_the_client_cas_alone() -> None:
    assert {each.name for each in dataclasses.fields(Inputs)} == {"cluster", "uid", "client_cas"}


@pytest.mark.parametrize("step", OWN_STEPS)
def test_the_clusters_name_goes_into_host_name_and_owner_mark_alone(step: Step) -> None:
    texts = []
    for inputs in (inputs_of("gpu-1"), inputs_of("gpu-2")):
        made = marked(step, inputs)
        assert made["metadata"]["labels"].pop(OWNER_LABEL) == inputs.cluster
        text = json.dumps(made, sort_keys=True)
        texts.append(text.replace(inputs.hostname.partition(".")[0], "<host>"))
    assert texts[0] == texts[1]
    assert "gpu-" not in texts[0]


FUNCTIONS = {each.name: composing(each) for each in COMPOSITIONS}
each_function = pytest.mark.parametrize(("name", "function"), FUNCTIONS.items(), ids=FUNCTIONS)


@each_function
def test_nothing_that_a_set_says_wakes_a_set(name: str, function: Function) -> None:
    assert name == function.name.removeprefix("compose/")
    said = {each for one in FUNCTIONS.values() for each in one.emits}
    for wake in function.wakes_on:
        assert not [
            each for each in said if each == wake.type or (wake.type.endswith(".") and each.startswith(wake.type))
        ]


@each_function
def test_every_component_of_a_gate_wakes_its_set_and_no_other_does(name: str, function: Function) -> None:
    needed = {key for row in TABLE[name] for key in row.needs}
    met = [wake for wake in function.wakes_on if wake.type == types.REQUIREMENT_MET]
    assert {dict(wake.attributes)["component"] for wake in met} == needed
    assert len(met) == len(needed)


@each_function
def test_every_object_of_a_set_wakes_it_but_a_secret_and_so_does_a_definition_of_no_component(
    name: str, function: Function
) -> None:
    watched = {
        (attributes.get("apiversion", ""), attributes["kind"], each)
        for wake in function.wakes_on
        if wake.type == types.OBJECT_CHANGED and (attributes := dict(wake.attributes))
        for each in wake.names
    }
    definitions = {("", "CustomResourceDefinition", "issuers.cert-manager.io")} if name == "gateway" else set()
    objects = {(*row.api.split(" "), row.where.rpartition("/")[2]) for row in TABLE[name]}
    assert watched == objects | definitions


def test_the_stacks_of_the_table_are_the_stacks_of_the_catalog() -> None:
    assert {stack for rows in TABLE.values() for row in rows for stack in row.stacks} == {str(each) for each in Stack}


def test_the_finalizers_are_those_that_a_deleted_cluster_is_seen_to_for() -> None:
    assert {each.finalizer for each in COMPOSITIONS} == OUR_FINALIZERS


@pytest.mark.parametrize(
    ("name", "definitions"),
    [
        pytest.param("gateway", {"issuers.cert-manager.io"}, id="gateway"),
        pytest.param("queues", set(), id="queues"),
        pytest.param("modelexpress", set(), id="modelexpress"),
    ],
)
def test_a_definition_that_no_component_is_asked_for_wakes_a_set_that_has_its_kind(
    name: str, definitions: set[str]
) -> None:
    woken = {
        each
        for wake in FUNCTIONS[name].wakes_on
        if dict(wake.attributes) == {"kind": "CustomResourceDefinition"}
        for each in wake.names
    }
    assert woken == definitions
