"""What is done to models: find activations, swap them, train and harden them, replace them by ReLU."""

from .activation_text import module_of, name_of, register_transformers
from .calibration import Calibration, calibrate_
from .clipping import Clipping, clip_activations_
from .finding import Site, sites
from .groups import PairedOptimizer, optimizers, param_groups
from .hardening import Hardener
from .relu_ize import ReluIzed, relu_ize_
from .squaf_training import SquafMode, SquafTraining, squaf_mode_, train_squaf_
from .swapping import PlanError, Report, apply_, swap_

__all__ = [
    "Calibration",
    "Clipping",
    "Hardener",
    "PairedOptimizer",
    "PlanError",
    "ReluIzed",
    "Report",
    "Site",
    "SquafMode",
    "SquafTraining",
    "apply_",
    "calibrate_",
    "clip_activations_",
    "module_of",
    "name_of",
    "optimizers",
    "param_groups",
    "register_transformers",
    "relu_ize_",
    "sites",
    "squaf_mode_",
    "swap_",
    "train_squaf_",
]
