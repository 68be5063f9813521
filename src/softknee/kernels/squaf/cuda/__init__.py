"""SQUAF's kernels in CUDA C++: `soft` for the usual case, `modes` for SQUAF-S and SQUAF-P, `any_window` for the rest.

The text of each is a file beside it (`*.cu`); what they share is in `common.cu`.
"""
