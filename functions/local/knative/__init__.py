"""Knative Eventing on this machine: its unmodified programs, as processes in network namespaces of their own.

What a cluster does for them is done here by small stand-ins: for the kubelet, for kube-proxy and the cluster's DNS, and
for Knative Serving as far as that runs a container. `serving-stack local up --knative` and the tests use it.

    instance      from outside: starts and ends all of it
    settings      what the keeper is told
    keeper        the process inside, which starts everything else
    programs      Knative's programs, built once
    manifests     what is installed of Knative, in which order
    cluster       the stand-ins together
    informer      all objects of a kind, by watching
    network       a bridge, and a network namespace per pod
    services      addresses and names of Services
    relay, dns    what these rest on
    kubelet       Deployments become pods, and their status tells how these are
    pod           one process in one of the networks
    pod_objects   the Pod in the API server that stands for it
    template      what a pod template says, as a process is started
    serving       Knative Services become Deployments
"""
