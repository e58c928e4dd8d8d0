"""The components, in the order of the user's page, which is also the order of every message and table."""

from __future__ import annotations

from typing import Final

from functions.catalog.component import Component, Stack
from functions.catalog.requirement import CustomResource, DeviceClass

EXTENSION_MANAGER: Final = """\
config:
  envoyGateway:
    extensionApis:
      enableBackend: true
    extensionManager:
      hooks:
        xdsTranslator:
          translation:
            listener:
              includeAll: true
            route:
              includeAll: true
            cluster:
              includeAll: true
            secret:
              includeAll: true
          post:
            - Translation
            - Cluster
            - Route
      service:
        fqdn:
          hostname: ai-gateway-controller.envoy-ai-gateway-system.svc.cluster.local
          port: 1063
      backendResources:
        - group: inference.networking.k8s.io
          kind: InferencePool
          version: v1
"""
"""Values of chart gateway-helm that hand external processing to the AI Gateway; silent when absent."""

COMPONENTS: Final = (
    Component(
        key="cert-manager",
        purpose="issues the certificates of the inference gateway",
        chart="cert-manager",
        version="v1.20.2",
        requirements=(CustomResource("certificates.cert-manager.io", "v1"),),
        not_checked=("cert-manager's controller and webhook run, and Certificates really get issued.",),
        hint="Install chart cert-manager v1.20.2 with its CRDs (crds.enabled=true).",
        link="https://cert-manager.io/docs/installation/helm/",
    ),
    Component(
        key="kube-prometheus-stack",
        purpose="scrapes the metrics of models and gateway",
        chart="kube-prometheus-stack",
        version="84.4.0",
        requirements=(
            CustomResource("podmonitors.monitoring.coreos.com", "v1"),
            CustomResource("servicemonitors.monitoring.coreos.com", "v1"),
        ),
        not_checked=(
            (
                "Prometheus picks up PodMonitors from every namespace: Modelplane creates them beside the workloads, "
                "and the chart's default selector asks for a release label that they do not carry. Set "
                "podMonitorSelectorNilUsesHelmValues to false and leave podMonitorNamespaceSelector empty."
            ),
            (
                "A scrape job for the stats endpoint of the Envoy Gateway proxies, where request metrics at the proxy "
                "are wanted."
            ),
        ),
        not_needed=("Grafana and Alertmanager: Modelplane switches both off.",),
        hint="Install chart kube-prometheus-stack 84.4.0, or the Prometheus Operator with its CRDs.",
        link="https://prometheus-operator.dev/docs/getting-started/installation/",
    ),
    Component(
        key="node-feature-discovery",
        purpose="labels GPU nodes, so that the DRA driver goes there",
        chart="node-feature-discovery",
        version="0.19.0",
        requirements=(CustomResource("nodefeatures.nfd.k8s-sigs.io", "v1alpha1"),),
        not_checked=(
            (
                "Its worker runs on every GPU node and sets the PCI labels of NVIDIA devices "
                "(feature.node.kubernetes.io/pci-10de and the like). On tainted GPU nodes the worker needs a "
                "toleration: without the label the DRA driver's kubelet plugin is never scheduled and each GPU "
                "ResourceClaim stays pending, though every component looks healthy."
            ),
        ),
        hint="Install chart node-feature-discovery 0.19.0, with tolerations for the taints of the GPU nodes.",
        link="https://kubernetes-sigs.github.io/node-feature-discovery/stable/deployment/helm.html",
    ),
    Component(
        key="nvidia-dra-driver-gpu",
        purpose="hands out GPUs through dynamic resource allocation",
        chart="dra-driver-nvidia-gpu",
        version="0.4.1",
        requirements=(DeviceClass("gpu.nvidia.com"),),
        not_checked=(
            (
                "Every GPU node brings NVIDIA's kernel driver and the Container Toolkit, built in or set up by the GPU "
                "Operator, no older than an existing cluster needs."
            ),
            "Each GPU node shows up in ResourceSlices, which the kubelet plugin of the driver writes.",
            "No device plugin advertises nvidia.com/gpu: it would hand out the same GPUs a second time.",
        ),
        not_needed=("ComputeDomains (multi-node NVLink) and what they need: Modelplane switches them off.",),
        hint="Install chart dra-driver-nvidia-gpu 0.4.1 on Kubernetes 1.34 or newer; it creates the DeviceClass.",
        link="https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu",
    ),
    Component(
        key="envoy-gateway",
        purpose="runs the inference gateway",
        chart="gateway-helm",
        version="v1.8.4",
        requirements=(
            CustomResource("gatewayclasses.gateway.networking.k8s.io", "v1"),
            CustomResource("gateways.gateway.networking.k8s.io", "v1"),
            CustomResource("httproutes.gateway.networking.k8s.io", "v1"),
            CustomResource("envoyproxies.gateway.envoyproxy.io", "v1alpha1"),
            CustomResource("backends.gateway.envoyproxy.io", "v1alpha1"),
            CustomResource("clienttrafficpolicies.gateway.envoyproxy.io", "v1alpha1"),
        ),
        not_checked=(
            (
                "It hands external processing to the AI Gateway's Service, accepts Backends, and takes InferencePools "
                "as backends: the extensionManager values do all three. Where they are absent no request reaches a "
                "model, and nothing looks wrong."
            ),
        ),
        hint="Install chart gateway-helm v1.8.4 with the extensionManager values of `serving-stack requirements`.",
        link="https://gateway.envoyproxy.io/docs/install/install-helm/",
    ),
    Component(
        key="ai-gateway-crds",
        purpose="defines the routes to models",
        chart="ai-gateway-crds-helm",
        version="v1.1.0",
        requirements=(CustomResource("aigatewayroutes.aigateway.envoyproxy.io", "v1alpha1"),),
        not_checked=("The release is v1.1.0: these APIs are v1alpha1 and move together with their controller.",),
        hint="Install chart ai-gateway-crds-helm v1.1.0.",
        link="https://aigateway.envoyproxy.io/docs/getting-started/installation",
    ),
    Component(
        key="ai-gateway",
        purpose="processes requests on behalf of the gateway",
        chart="ai-gateway-helm",
        version="v1.1.0",
        not_checked=(
            (
                "Its controller answers at ai-gateway-controller.envoy-ai-gateway-system.svc.cluster.local:1063, "
                "where the extensionManager values point: one installed elsewhere never sees the traffic."
            ),
        ),
        hint="Install chart ai-gateway-helm v1.1.0 into namespace envoy-ai-gateway-system.",
        link="https://aigateway.envoyproxy.io/docs/getting-started/installation",
    ),
    Component(
        key="gaie-crds",
        purpose="defines the pools of model servers",
        requirements=(CustomResource("inferencepools.inference.networking.k8s.io", "v1"),),
        hint="Apply the CRDs of a Gateway API Inference Extension release that serves InferencePool v1.",
        link="https://gateway-api-inference-extension.sigs.k8s.io/guides/",
    ),
    Component(
        key="trust-manager",
        purpose="publishes the cluster CA without its key",
        chart="trust-manager",
        version="v0.25.0",
        requirements=(CustomResource("bundles.trust.cert-manager.io", "v1alpha1"),),
        not_checked=(
            (
                "Its trust namespace is modelplane-system, where the Bundle of the gateway's PKI has its source: one "
                "that watches another namespace never syncs it, and the control plane cannot read the cluster CA."
            ),
        ),
        hint="Install chart trust-manager v0.25.0 with app.trust.namespace=modelplane-system.",
        link="https://cert-manager.io/docs/trust/trust-manager/installation/",
    ),
    Component(
        key="dra-driver-critical-pods-quota",
        purpose="lets the DRA driver's critical pods start",
        not_checked=(
            (
                "Where a namespace quota restricts system-node-critical pods, as on GKE, the DRA driver's namespace "
                "has a ResourceQuota that admits them; else the DaemonSet of its kubelet plugin never starts."
            ),
        ),
        hint="Create a ResourceQuota in the DRA driver's namespace that admits PriorityClass system-node-critical.",
        link="https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default",
    ),
    Component(
        key="leader-worker-set",
        purpose="runs models that span several nodes",
        chart="lws",
        version="v0.8.0",
        stacks=frozenset({Stack.STANDARD}),
        requirements=(CustomResource("leaderworkersets.leaderworkerset.x-k8s.io", "v1"),),
        not_checked=("Its controller runs, and is a release of v0.8, which Modelplane's objects are made for.",),
        hint="Install chart lws v0.8.0.",
        link="https://lws.sigs.k8s.io/docs/installation/",
    ),
    Component(
        key="grove",
        purpose="runs Dynamo's gangs of pods",
        chart="grove-charts",
        version="v0.1.0-alpha.12-rc2",
        stacks=frozenset({Stack.DYNAMO}),
        requirements=(CustomResource("podcliquesets.grove.io", "v1alpha1"),),
        not_checked=(
            (
                "It is the very release named here: its v1alpha1 objects may change with any other, and the CRD looks "
                "the same for all of them. Until that settles, the Dynamo stack is better off Managed."
            ),
        ),
        hint="Install chart grove-charts v0.1.0-alpha.12-rc2, exactly this version.",
        link="https://github.com/ai-dynamo/grove",
    ),
    Component(
        key="kai-scheduler",
        purpose="schedules Dynamo's pods by queue",
        chart="kai-scheduler",
        version="v0.16.8",
        stacks=frozenset({Stack.DYNAMO}),
        requirements=(CustomResource("queues.scheduling.run.ai", "v2"),),
        not_checked=(
            (
                "Pods that name the scheduler kai-scheduler, as Modelplane's engines do, are scheduled, and the Queue "
                "webhook answers. The line in use is v0.16."
            ),
        ),
        hint="Install chart kai-scheduler v0.16.8.",
        link="https://github.com/kai-scheduler/KAI-Scheduler",
    ),
)

_BY_KEY: Final = {each.key: each for each in COMPONENTS}


def component(key: str) -> Component:
    """The component with this key; KeyError where there is none."""
    return _BY_KEY[key]


def of_stack(stack: Stack) -> tuple[Component, ...]:
    """The components that a stack needs, in catalog order."""
    return tuple(each for each in COMPONENTS if stack in each.stacks)
