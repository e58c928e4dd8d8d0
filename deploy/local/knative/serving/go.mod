// The module that holds the CRDs of Knative Serving. Nothing here is compiled, and `go mod tidy` would drop it all.
module serving

go 1.26.0

require knative.dev/serving v0.50.0
