"""`serving-stack render` as a person runs it: what is printed, and that the API server takes it as the functions' own.

`UPDATE_GOLDEN=1 pytest tests/cli/test_render.py` writes the golden files anew; read the difference then.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from functions.catalog import Stack
from functions.cli.main import cli
from functions.cli.render import CLIENT_CA_PLACEHOLDER, SETS
from functions.compose.ownership import MANAGER, OWNER, OWNER_UID
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import Controllers
from tests.compose.apart import objects_of, remove_all_but
from tests.compose.certificates import certificate, expired, otherwise, private_key
from tests.compose.stage import steps
from tests.support import CLUSTERS, put_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from click.testing import Result

    from functions.compose.step import Step
    from functions.local.api import Api
    from functions.local.instance import ControlPlane
    from tests.compose.apart import Apart

PROGRAM = Path(sys.executable).with_name("serving-stack")
GOLDEN = Path(__file__).parent / "golden"
UID = "6f6d6d3c-9d5b-4b51-8a53-3a4d0a2a4a4c"
STEPS = {
    stack: [each for each in steps(*(one for one in COMPOSITIONS if stack in one.stacks)) if each.manifest is not None]
    for stack in Stack
}


def render(*arguments: str | Path) -> Result:
    return CliRunner(env={"KUBECONFIG": "/no/such/file"}).invoke(cli, ["render", *map(str, arguments)])


def texts(printed: str) -> list[str]:
    """Each document as it is printed."""
    nothing, *found = re.split("^---\n", printed, flags=re.MULTILINE)
    assert nothing == ""
    return found


def documents(printed: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(printed))


def keys(objects: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{each['kind']} {each['metadata']['name']}" for each in objects]


def written(directory: Path, name: str, *texts: str) -> Path:
    file = directory / name
    file.write_text("".join(texts), "utf-8")
    return file


@pytest.mark.parametrize("stack", Stack)
def test_it_is_printed_as_its_golden_file(stack: Stack) -> None:
    done = subprocess.run(
        [PROGRAM, "render", "gpu-1", "--stack", str(stack).lower(), "--uid", UID],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    file = GOLDEN / f"render-{str(stack).lower()}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(done.stdout, "utf-8")
    assert (done.returncode, done.stdout) == (0, file.read_text("utf-8"))


@pytest.mark.parametrize("stack", Stack)
def test_every_object_is_there_in_the_order_of_the_steps(stack: Stack) -> None:
    printed = render("gpu-1", "--stack", str(stack)).stdout
    assert keys(documents(printed)) == [each.key for each in STEPS[stack]]


def test_each_document_names_its_gate() -> None:
    found = texts(render("gpu-1", "--stack", "Dynamo").stdout)
    gates = {keys([yaml.safe_load(each)])[0]: each.splitlines()[0] for each in found}
    assert len(gates) == len(STEPS[Stack.DYNAMO])
    assert gates["Service modelexpress-server"] == "# waits for: nothing"
    assert gates["Queue modelplane"] == "# waits for: kai-scheduler; Queue modelplane-root applied"
    assert gates["Gateway cluster-gateway"] == (
        "# waits for: envoy-gateway, ai-gateway-crds, gaie-crds; a client CA; "
        "ConfigMap modelplane-inference-gateway-cas applied; ClientTrafficPolicy cluster-gateway-client-auth applied; "
        "GatewayClass envoy ready; Certificate cluster-gateway-serving ready"
    )


def test_json_is_a_list_of_the_same() -> None:
    as_json = json.loads(render("gpu-1", "-o", "json").stdout)
    assert (as_json["apiVersion"], as_json["kind"]) == ("v1", "List")
    assert as_json["items"] == documents(render("gpu-1").stdout)


def test_the_standard_stack_is_the_default() -> None:
    assert render("gpu-1").stdout == render("gpu-1", "--stack", "Standard").stdout


def test_the_sets_that_can_be_named_are_those_there_are() -> None:
    assert tuple(each.name for each in COMPOSITIONS) == SETS


@pytest.mark.parametrize("names", [["queues"], ["modelexpress", "queues"]], ids=["one", "two"])
def test_only_the_sets_that_are_named(names: list[str]) -> None:
    done = render("gpu-1", "--stack", "Dynamo", *(word for name in names for word in ("--set", name)))
    wanted = [each.key for each in steps(*(one for one in COMPOSITIONS if one.name in names))]
    assert (done.exit_code, done.stderr, keys(documents(done.stdout))) == (0, "", wanted)


def test_without_a_uid_the_annotation_says_what_belongs_there() -> None:
    for each in documents(render("gpu-1").stdout):
        said = each["metadata"]["annotations"][OWNER_UID]
        assert said == "<the uid of InferenceCluster gpu-1: kubectl get ic gpu-1 -o jsonpath={.metadata.uid}>"


def test_without_a_cluster_it_is_an_example() -> None:
    done = render()
    assert {each["metadata"]["labels"][OWNER] for each in documents(done.stdout)} == {"example"}
    assert "No CLUSTER is given: these are the objects of one that is called example." in done.stderr


def test_without_a_client_ca_it_says_what_is_withheld() -> None:
    done = render("gpu-1")
    (said,) = done.stderr.splitlines()
    for name in (
        "ConfigMap modelplane-system/modelplane-inference-gateway-cas",
        "ClientTrafficPolicy modelplane-system/cluster-gateway-client-auth",
        "Gateway modelplane-system/cluster-gateway",
    ):
        assert name in said
    assert client_cas(done.stdout) == CLIENT_CA_PLACEHOLDER


def client_cas(printed: str) -> str:
    (found,) = (each for each in documents(printed) if each["kind"] == "ConfigMap")
    return str(found["data"]["ca.crt"])


def test_client_cas_are_those_of_the_files_each_once_in_their_order(tmp_path: Path) -> None:
    one, other = certificate("us"), certificate("eu")
    first = written(tmp_path, "us.pem", "# of the gateway in the US: größer\n", one, otherwise(other))
    second = written(tmp_path, "eu.pem", other)
    done = render("gpu-1", "--client-ca", first, "--client-ca", second)
    assert (done.exit_code, done.stderr, client_cas(done.stdout)) == (0, "", one + other)


def test_a_certificate_that_is_of_no_use_is_left_out_as_the_functions_do(tmp_path: Path) -> None:
    good = certificate()
    file = written(tmp_path, "eu.pem", good, certificate("jane", ca=False))
    done = render("gpu-1", "--client-ca", file)
    assert (done.exit_code, client_cas(done.stdout)) == (0, good)
    assert done.stderr == f"Left out: {file}: it is not the certificate of a CA\n"


def test_no_key_is_printed(tmp_path: Path) -> None:
    done = render("gpu-1", "--client-ca", written(tmp_path, "eu.pem", private_key(), certificate()))
    assert done.exit_code == 0
    assert "PRIVATE KEY" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["GPU_1"], "no InferenceCluster can be called 'GPU_1'", id="name"),
        pytest.param(["a..b"], "no InferenceCluster can be called 'a..b'", id="empty-label"),
        pytest.param(["a" * 254], "no InferenceCluster can be called", id="too-long"),
        pytest.param(["a\x1b[31m"], "no InferenceCluster can be called", id="control"),
        pytest.param(["gpu-1", "gpu-2"], "unexpected extra argument", id="two-names"),
        pytest.param(["gpu-1", "--stack", "Other"], "'Other' is not one of", id="stack"),
        pytest.param(["gpu-1", "--set", "queues"], "stack Standard has no set queues; it has: gateway", id="set"),
        pytest.param(["gpu-1", "--set", "other"], "'other' is not one of", id="no-set"),
        pytest.param(["gpu-1", "--uid", " "], "metadata.uid", id="empty-uid"),
        pytest.param(["gpu-1", "--client-ca", "/no/such/file"], "'/no/such/file' does not exist", id="no-file"),
        pytest.param(["gpu-1", "--client-ca", __file__], "it is no PEM certificate", id="no-certificate"),
        pytest.param(["gpu-1", "-o", "text"], "'text' is not one of", id="output"),
    ],
)
def test_wrong_use(arguments: list[str], complaint: str) -> None:
    done = render(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert complaint in " ".join(done.stderr.split())
    assert "\x1b" not in done.stderr


def test_an_expired_client_ca_alone_is_a_wrong_use(tmp_path: Path) -> None:
    file = written(tmp_path, "old.pem", expired())
    done = render("gpu-1", "--client-ca", file)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{file}: it expired on 2" in " ".join(done.stderr.split())


@pytest.mark.parametrize("stack", Stack)
async def test_it_is_what_the_functions_apply(stack: Stack, away: Apart, tmp_path: Path) -> None:
    file = written(tmp_path, "eu.pem", away.publish_ca())
    register(away, stack)
    before = objects_of(away.away.api)
    done = render("gpu-1", "--stack", str(stack), "--uid", away.uid(), "--client-ca", file)
    rendered = dict(zip(STEPS[stack], texts(done.stdout), strict=True))

    for step, document in rendered.items():
        assert apply_strictly(away.away.api, step, document) == 201, document
    as_rendered = versions(away.away.api, rendered)
    await away.judge()
    await away.compose()
    assert versions(away.away.api, rendered) == as_rendered, "the functions find nothing to put right"

    remove_all_but(before, away.away.api)
    async with Controllers(away.client):
        await away.settle(*(each for each in COMPOSITIONS if stack in each.stacks))
    as_composed = versions(away.away.api, rendered)
    for step, document in rendered.items():
        assert apply_strictly(away.away.api, step, document) == 200, document
    assert versions(away.away.api, rendered) == as_composed, "what is rendered changes nothing of it"


def register(stage: Apart, stack: Stack) -> None:
    """Has `gpu-1` on that stack, which cannot be changed."""
    assert stage.api.request("DELETE", f"{CLUSTERS}/gpu-1").status == 200
    put_cluster(stage.api, stack=str(stack))


def apply_strictly(api: Api, step: Step, document: str) -> int:
    """Sends a document as it was printed, as the functions' own; answers with the status."""
    query = f"fieldManager={MANAGER}&force=false&fieldValidation=Strict"
    headers = {"Authorization": f"Bearer {api._token}", "Content-Type": "application/apply-patch+yaml"}
    connection = http.client.HTTPSConnection("127.0.0.1", api._port, timeout=10, context=api._context)
    with contextlib.closing(connection):
        connection.request("PATCH", f"{step.path}?{query}", document.encode(), headers)
        return connection.getresponse().status


def versions(api: Api, rendered: Iterable[Step]) -> dict[str, str]:
    """The generation or, of an object without, the resourceVersion: neither moves when only a status is written."""
    found = {each.key: api.request("GET", each.path).body["metadata"] for each in rendered}
    return {key: str(each.get("generation") or each["resourceVersion"]) for key, each in found.items()}


@pytest.mark.parametrize("name", ["1e3", "0x1f", "0o17", "123", "y", "no", "null", "1.5", "a.b-c"])
def test_a_name_stays_a_name_to_the_api_server(name: str, clean: ControlPlane) -> None:
    namespace = STEPS[Stack.STANDARD][0]
    document = texts(render(name, "--uid", name).stdout)[0]
    assert apply_strictly(clean.api, namespace, document) in {200, 201}
    metadata = clean.api.request("GET", namespace.path).body["metadata"]
    assert (metadata["labels"][OWNER], metadata["annotations"][OWNER_UID]) == (name, name)
