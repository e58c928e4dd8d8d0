"""leader-worker-set runs models that span several nodes."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("leader-worker-set"))
