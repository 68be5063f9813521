"""Training: one loop over M replicas at once; schedules are pure functions of progress."""

from .random_keys import order
from .replicas import Replicas
from .schedules import constant, cosine, linear

__all__ = ["Replicas", "constant", "cosine", "linear", "order"]
