"""cert-manager issues the certificates of the inference gateway."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("cert-manager"))
