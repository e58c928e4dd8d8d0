"""What is built and installed of Knative is what the modules pin."""

from __future__ import annotations

import re

from functions.deploy_files import deploy_directory
from functions.local.binaries import KUBECTL
from functions.local.knative.manifests import _ORDER, load, manifests_directory, path_of
from functions.local.knative.programs import PROGRAMS, version


def _tools(module: str) -> set[str]:
    text = (deploy_directory() / "local" / module / "go.mod").read_text()
    block = re.search(r"^tool \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    return set(block[1].split()) if block else set(re.findall(r"^tool (\S+)$", text, re.MULTILINE))


def _version(module: str, of: str) -> str:
    text = (deploy_directory() / "local" / module / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(of)} (v\S+)", text, re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_tools_of_the_modules_are_those_that_are_built() -> None:
    assert _tools("knative") == {f"knative.dev/eventing/cmd/{program}" for program in PROGRAMS}
    assert _tools("kubectl") == set(KUBECTL.values())


def test_kubectl_is_of_the_version_of_the_servers() -> None:
    assert _version("kubectl", "k8s.io/kubernetes") == _version("controlplane", "k8s.io/kubernetes")


def test_the_definitions_of_serving_are_of_the_release_of_eventing() -> None:
    assert _version("knative/serving", "knative.dev/serving") == version() == "v0.50.0"


def test_everything_that_is_installed_has_a_path_and_comes_once() -> None:
    found = load(manifests_directory())
    paths = [path_of(each) for each in found]
    assert len(set(paths)) == len(paths)
    assert "/api/v1/namespaces/knative-eventing/configmaps/config-features" in paths
    assert "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/services.serving.knative.dev" in paths
    assert "/apis/apps/v1/namespaces/knative-eventing/deployments/mt-broker-ingress" in paths
    assert not any("job-sink" in path and "/deployments/" in path for path in paths)
    # What refers to something comes after it.
    order = [kind for kinds in _ORDER for kind in kinds]
    assert order.index("Namespace") < order.index("ServiceAccount") < order.index("Deployment")
