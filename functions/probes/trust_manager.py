"""trust-manager publishes the cluster CA without its key."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("trust-manager"))
