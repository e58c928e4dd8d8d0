"""What an InferenceCluster publishes of its gateway: where it is, by which name, and whose certificate it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from functions.compose.ownership import is_ours
from functions.compose.readiness import CA_KEY, address_of, is_pem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.compose.look import Look
    from functions.compose.step import Inputs
    from functions.conditions import Condition

GATEWAY: Final = "Gateway cluster-gateway"
_NAMED: Final = "Gateway modelplane-system/cluster-gateway"
CA: Final = "ConfigMap modelplane-cluster-ca"
_LONGEST_CA: Final = 16384
_LONGEST_ADDRESS: Final = 256


def published(
    look: Look, inputs: Inputs, before: Mapping[str, str], condition: Condition | None, *, tick: bool
) -> dict[str, str]:
    """`status.gateway` as it should stand now.

    An address that is gone is cleared when it is still gone at the next tick: a load balancer that is replaced is no
    reason to send everybody away.

    Args:
        look: What is there.
        inputs: What it was made from.
        before: What is published.
        condition: The set's condition as it was written before.
        tick: Whether nothing but time was the reason to look.
    """
    if inputs.client_cas.trouble is not None:
        return dict(before)
    if not inputs.client_cas.bundle:
        return {}
    address = _address(look, inputs)
    if not address:
        was_gone = condition is not None and _NAMED in condition.message  # which names what is wanting
        unseen = GATEWAY in look.troubles or GATEWAY in look.unserved
        return {} if tick and was_gone and not unseen else dict(before)
    said = {"address": address}
    certificate = _certificate(look, before)
    if certificate:
        said |= {"caCertificate": certificate, "hostname": inputs.hostname}
    return said


def _address(look: Look, inputs: Inputs) -> str:
    gateway = look.found.get(GATEWAY)
    if gateway is None or not is_ours(gateway, inputs.uid):
        return ""
    return address_of(gateway)[:_LONGEST_ADDRESS]


def _certificate(look: Look, before: Mapping[str, str]) -> str:
    config_map: Mapping[str, Any] | None = look.found.get(CA)
    if config_map is None:
        return before.get("caCertificate", "") if CA in look.troubles else ""
    text: str = (config_map.get("data") or {}).get(CA_KEY, "")
    return text if len(text) <= _LONGEST_CA and is_pem(text) else ""
