"""What is done to models: find activations, swap them, train and harden them, replace them by ReLU."""

from .activation_text import module_of, name_of
from .calibration import Calibration, calibrate_
from .clipping import Clipping, clip_activations_
from .finding import Site, sites
from .groups import param_groups
from .hardening import Hardener
from .optimizers import PairedOptimizer, optimizers
from .relu_ize import ReluIzed, relu_ize_
from .swapping import PlanError, Report, apply_, swap_
from .transformers_names import register_transformers

__all__ = [
    "Calibration",
    "Clipping",
    "Hardener",
    "PairedOptimizer",
    "PlanError",
    "ReluIzed",
    "Report",
    "Site",
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
    "swap_",
]
