"""Runs definitions on tensors: plain operations, cache blocks, fused GPU kernels; one rule chooses."""

from .dispatch import Choice, choose
from .pointwise import call, find, fit_shape, resolve, run, runtime_of

__all__ = ["Choice", "call", "choose", "find", "fit_shape", "resolve", "run", "runtime_of"]
