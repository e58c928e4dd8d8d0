"""Every function there is, by name; the host serves them, and Triggers and documentation are generated from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from functions import cluster, dead_letters, journal
from functions.compose.function import composing
from functions.compose.sets import COMPOSITIONS
from functions.probes import (
    ai_gateway,
    ai_gateway_crds,
    cert_manager,
    dra_driver_critical_pods_quota,
    envoy_gateway,
    gaie_crds,
    grove,
    kai_scheduler,
    kube_prometheus_stack,
    leader_worker_set,
    node_feature_discovery,
    nvidia_dra_driver_gpu,
    sweep,
    trust_manager,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.function import Function

PROBES: Final = (
    cert_manager,
    kube_prometheus_stack,
    node_feature_discovery,
    nvidia_dra_driver_gpu,
    envoy_gateway,
    ai_gateway_crds,
    ai_gateway,
    gaie_crds,
    trust_manager,
    dra_driver_critical_pods_quota,
    leader_worker_set,
    grove,
    kai_scheduler,
)

FUNCTIONS: Final[Mapping[str, Function]] = {
    each.name: each
    for each in (
        *(each.FUNCTION for each in (cluster, sweep, *PROBES)),
        *(composing(each) for each in COMPOSITIONS),
        *(each.FUNCTION for each in (journal, dead_letters)),
    )
}
