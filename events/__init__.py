"""CloudEvents: what is said between the parts, how it is written on the wire, and a broker to carry it.

Knows nothing of Kubernetes clients or of the functions; everything above speaks through this package.
"""
