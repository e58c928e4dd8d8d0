// Modules that hold the real CRDs. Nothing here is compiled, and `go mod tidy` would drop it all.
module crds

go 1.26.5

// envoy-gateway and ai-gateway differ from the catalog's versions, which are not served as modules.
require (
	github.com/cert-manager/cert-manager v1.20.2
	github.com/cert-manager/trust-manager v0.25.0
	github.com/envoyproxy/ai-gateway v1.0.0
	github.com/envoyproxy/gateway v1.8.3
	github.com/prometheus-operator/prometheus-operator v0.90.1
	sigs.k8s.io/gateway-api v1.5.1
	sigs.k8s.io/gateway-api-inference-extension v1.0.2
	sigs.k8s.io/lws v0.8.0
	sigs.k8s.io/node-feature-discovery v0.19.0
)
