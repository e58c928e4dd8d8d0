"""grove runs Dynamo's gangs of pods."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("grove"))
