"""Modelplane's own objects on a target: each set of them applied behind its gates, and taken down in order.

A set is a file with a list of steps (`gateway`, `queues`, `modelexpress`); the rest of the package is one engine.
"""
