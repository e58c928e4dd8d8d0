"""A real control plane on this machine: etcd, kube-apiserver and kube-controller-manager, without containers.

Used by `serving-stack local`, by `serving-stack demo` and by the tests.
"""
