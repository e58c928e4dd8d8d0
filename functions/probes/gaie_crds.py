"""gaie-crds defines the pools of model servers."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("gaie-crds"))
