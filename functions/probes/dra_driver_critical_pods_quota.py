"""dra-driver-critical-pods-quota lets the DRA driver's critical pods start.

Nothing of it gates yet: the user's page lists only what is not checked, so no object wakes it.
"""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("dra-driver-critical-pods-quota"))
