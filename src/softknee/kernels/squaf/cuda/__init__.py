"""SQUAF's kernels in CUDA C++: `soft` for the usual case, `modes` for SQUAF-S and SQUAF-P, `any_window` for the rest.

Each holds its own text; what they share is in `source`.
"""
