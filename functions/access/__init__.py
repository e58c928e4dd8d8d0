"""Access to one Kubernetes cluster: a kubeconfig becomes a connection, a connection a client, trouble a typed error."""
