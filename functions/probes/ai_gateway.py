"""ai-gateway processes requests on behalf of the gateway.

Nothing of it gates yet: the user's page lists only what is not checked, so no object wakes it.
"""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("ai-gateway"))
