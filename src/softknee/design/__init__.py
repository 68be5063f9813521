"""Engines that make new definitions, and the proofs of what was made."""

__all__: list[str] = []
