"""kube-prometheus-stack scrapes the metrics of models and gateway."""

from functions.catalog import component
from functions.probes.probe import probe

FUNCTION = probe(component("kube-prometheus-stack"))
