"""softknee: activation functions as engineered parts.

import softknee as sk
act = sk.get("srelu")            # a definition: formula, derivatives, parameters, claims
y = act(x, delta=0.1)            # on any tensor
m = sk.nn.SReLU(delta=0.1)       # as a module
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
    from . import design, measure, nn, spec, surgery, train, wire
    from .spec import Activation
    from .surgery import (
        Hardener,
        apply_,
        calibrate_,
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
    "design": (".design", None),
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
    "design",
    "explain",
    "get",
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
