"""SQUAF's kernels in CUDA C++: `soft` for the usual case, `modes` for SQUAF-S and SQUAF-P, `any_window` for the rest.

Their texts are in `source`, `memory_source`, `backward_source` and `modes_source`.
"""
