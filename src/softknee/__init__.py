"""softknee: activation functions as engineered parts.

import softknee as sk
act = sk.get("srelu")            # a definition: formula, derivatives, parameters, claims
y = act(x, delta=0.1)            # on any tensor
m = sk.nn.SReLU(delta=0.1)       # as a module

Functions
    names                   the names there are
    get                     the definition of a name, a formula or a file; explain says how a call of it is computed
    register                make a definition (Activation) of your own a name
    save, load              a definition as a file
    sk.design               make one: mollify, join, rescu, eafo, fit; certify proves its constants
    sk.nn                   modules: make, a class for each function, Gated; sk.spec has what definitions are made of

Models
    sites                   the activations of a model
    swap_, apply_           put another activation in; repeat that from a file
    calibrate_              widths from what reaches each activation
    clip_activations_       limit what activations give
    Hardener, relu_ize_     harden while training; put plain ReLU in, with the cost
    param_groups, optimizers                learning rates of activation parameters
    train_squaf_, squaf_mode_               SQUAF: which layers learn, and how they compute
    register_transformers   our names in the configurations of transformers (import softknee does it)

Training and measuring
    sk.train                fit, Replicas, schedules
    sk.measure              prediction difference, hardness, activity, entropy, calibration
    sk.lab                  search: find an activation for a model and its data
    sk.wire                 discrete activations as bits between processes
    sk.surgery              all that is done to models, with the types of the reports

The command `softknee` trains and compares (study), finds functions (search), proves and draws (design), measures speed
(bench) and opens the workbench: `softknee --help`. Every error is a SoftkneeError: DefinitionError, FormulaError,
InputError, MissingToolError, ParameterError, UnknownActivationError.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .api import explain, get, load, names, register, save
from .errors import (
    DefinitionError,
    FormulaError,
    InputError,
    MissingToolError,
    ParameterError,
    SoftkneeError,
    UnknownActivationError,
)
from .transformers_names import watch as _watch_transformers
from .version import VERSION as __version__

if TYPE_CHECKING:
    from . import design, lab, measure, nn, spec, surgery, train, wire
    from .spec import Activation
    from .surgery import (
        Hardener,
        apply_,
        calibrate_,
        clip_activations_,
        optimizers,
        param_groups,
        register_transformers,
        relu_ize_,
        sites,
        squaf_mode_,
        swap_,
        train_squaf_,
    )

_watch_transformers()

# Loaded on first use, because they need SymPy; the imports above are what editors and type checkers see of them.
_LAZY = {
    "Activation": (".spec", "Activation"),
    "Hardener": (".surgery", "Hardener"),
    "apply_": (".surgery", "apply_"),
    "calibrate_": (".surgery", "calibrate_"),
    "clip_activations_": (".surgery", "clip_activations_"),
    "design": (".design", None),
    "lab": (".lab", None),
    "measure": (".measure", None),
    "nn": (".nn", None),
    "optimizers": (".surgery", "optimizers"),
    "param_groups": (".surgery", "param_groups"),
    "register_transformers": (".surgery", "register_transformers"),
    "relu_ize_": (".surgery", "relu_ize_"),
    "sites": (".surgery", "sites"),
    "spec": (".spec", None),
    "squaf_mode_": (".surgery", "squaf_mode_"),
    "surgery": (".surgery", None),
    "swap_": (".surgery", "swap_"),
    "train": (".train", None),
    "train_squaf_": (".surgery", "train_squaf_"),
    "wire": (".wire", None),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'softknee' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    loaded = import_module(module, __name__)
    return loaded if attribute is None else getattr(loaded, attribute)


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Activation",
    "DefinitionError",
    "FormulaError",
    "Hardener",
    "InputError",
    "MissingToolError",
    "ParameterError",
    "SoftkneeError",
    "UnknownActivationError",
    "__version__",
    "apply_",
    "calibrate_",
    "clip_activations_",
    "design",
    "explain",
    "get",
    "lab",
    "load",
    "measure",
    "names",
    "nn",
    "optimizers",
    "param_groups",
    "register",
    "register_transformers",
    "relu_ize_",
    "save",
    "sites",
    "spec",
    "squaf_mode_",
    "surgery",
    "swap_",
    "train",
    "train_squaf_",
    "wire",
]
