"""ai-gateway-crds defines the routes to models."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("ai-gateway-crds"))
