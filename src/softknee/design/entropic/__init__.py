"""Functions that lower, or raise to the utmost, the entropy of what comes out."""
