"""node-feature-discovery labels GPU nodes, so that the DRA driver goes there."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("node-feature-discovery"))
