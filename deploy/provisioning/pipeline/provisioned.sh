#!/bin/sh
# Says that a cluster was provisioned, from a pipeline outside the hub that has kubectl and serving-stack.
#
#   CLUSTER  its name, and that of its InferenceCluster
#   SECRET   its kubeconfig Secret in modelplane-system, NAME or NAME/KEY; may be empty
#   INGRESS  the Service that the Broker is behind: broker-ingress unless set, with Kafka kafka-broker-ingress
#   OIDC     anything where Knative authenticates senders; then a token of provisioning-pipeline is shown
set -eu
: "${CLUSTER:?must be the name of the cluster}"

work=$(mktemp -d)
forward=
trap 'test -z "$forward" || kill "$forward" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# The Broker has an address inside the hub only.
: >"$work/forward"
kubectl --namespace knative-eventing port-forward "service/${INGRESS:-broker-ingress}" :80 >"$work/forward" &
forward=$!
port=
while test -z "$port"; do
  kill -0 "$forward" 2>/dev/null || exit 1 # kubectl has said why
  port=$(sed -n 's/^Forwarding from 127\.0\.0\.1:\([0-9]*\) .*/\1/p' "$work/forward")
  test -n "$port" || sleep 0.1
done

set -- --sink "http://127.0.0.1:$port/modelplane-serving-stack/serving-stack" --source /provisioning/pipeline
test -z "${SECRET:-}" || set -- "$@" --secret "$SECRET"
if test -n "${OIDC:-}"; then
  (umask 077 && kubectl --namespace modelplane-serving-stack create token provisioning-pipeline \
    --audience eventing.knative.dev/broker/modelplane-serving-stack/serving-stack >"$work/token")
  set -- "$@" --token-file "$work/token"
fi
serving-stack emit provisioned "$@" -- "$CLUSTER"
