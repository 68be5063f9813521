"""Image networks trained as the SQUAF paper does, for rate curves and distillation: see `plan` and `training`."""

from .batches import Batches
from .plan import MODES, Entry, Plan, build, check_network, squaf, trained_numbers
from .shapes import draw_shapes, learned, values_of
from .training import ImageTraining, Judge, accuracy, cross_entropy, few_images, settings_of_record

__all__ = [
    "MODES",
    "Batches",
    "Entry",
    "ImageTraining",
    "Judge",
    "Plan",
    "accuracy",
    "build",
    "check_network",
    "cross_entropy",
    "draw_shapes",
    "few_images",
    "learned",
    "settings_of_record",
    "squaf",
    "trained_numbers",
    "values_of",
]
