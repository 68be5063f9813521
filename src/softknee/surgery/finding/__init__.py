"""Finds the activations of a model, and says what each computes, where it is called and on what."""

from .sites import Site, sites

__all__ = ["Site", "sites"]
