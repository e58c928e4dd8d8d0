"""kai-scheduler schedules Dynamo's pods by queue."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("kai-scheduler"))
