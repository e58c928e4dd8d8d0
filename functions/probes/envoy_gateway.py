"""envoy-gateway runs the inference gateway."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("envoy-gateway"))
