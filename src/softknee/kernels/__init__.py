"""Runs definitions on tensors: plain operations, cache blocks, fused GPU kernels; one rule chooses."""

from . import squaf  # noqa: F401 - it tells soft tables how they are computed
from .dispatch import Choice, choose
from .gated import call_gated
from .pointwise import call, find, fit_shape, prepare, run

__all__ = ["Choice", "call", "call_gated", "choose", "find", "fit_shape", "prepare", "run"]
