"""Knative Eventing on this machine: its unmodified programs, as processes in network namespaces of their own.

What a cluster does for them is done here by small stand-ins: for the kubelet, for kube-proxy and the cluster's DNS, and
for Knative Serving as far as that runs a container. `serving-stack local up --knative` and the tests use it.

    instance    from outside: starts and ends all of it
    keeper      the process inside, which starts everything else
    network     bridge, and one network namespace per pod
    services    addresses and names of Services
    kubelet     Deployments become processes, and their status tells how these are
    serving     Knative Services become Deployments
    manifests   what is installed, in which order
"""
