"""Runs definitions on tensors: plain operations, cache blocks, fused GPU kernels; one rule chooses."""

from .dispatch import Choice, choose
from .pointwise import call, find, fit_shape, prepare, resolve, run

__all__ = ["Choice", "call", "choose", "find", "fit_shape", "prepare", "resolve", "run"]
