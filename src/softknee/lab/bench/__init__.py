"""Benchmarks: what activations cost on kernels, in models, in training and on the wire."""
