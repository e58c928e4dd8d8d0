"""nvidia-dra-driver-gpu hands out GPUs through dynamic resource allocation."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("nvidia-dra-driver-gpu"))
