"""SQUAF's usual case in CUDA C++: `soft` for SQUAF itself, `modes` for SQUAF-S and SQUAF-P; they share `source`."""
