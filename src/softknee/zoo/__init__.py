"""The functions. One line each: the name, and the file that defines it (read when first asked for)."""

from functools import partial
from importlib import import_module
from typing import Any

from ..registry import provide


def _load(file: str, name: str) -> Any:
    return getattr(import_module(f"{__name__}.{file}"), name)


_HOMES = {
    "relu": ("relu", "leaky_relu", "prelu", "relu6", "hardtanh", "hardswish"),
    "elu": ("elu", "celu", "selu"),
    "softplus": ("softplus",),
    "swish": ("swish",),
    "gelu": ("gelu", "gelu_tanh", "lambda_gelu"),
    "mish": ("mish", "tanhexp"),
    "bounded": ("tanh", "sigmoid", "softsign"),
    "srelu": ("srelu",),
    "smelu": (
        "smelu",
        "asymmetric_smelu",
        "leaky_smelu",
        "shifted_smelu",
        "generalized_smelu",
        "origin_smelu",
    ),
    "rescu": ("sigmoid_rescu", "smooth_relu"),
    "crrelu": ("crrelu", "crrelu_exact"),
    "squaf": ("squaf",),
}
_ALIASES = {"swish": ("silu",), "leaky_relu": ("lrelu",)}

for _file, _names in _HOMES.items():
    for _name in _names:
        provide(_name, partial(_load, _file, _name), also=_ALIASES.get(_name, ()))
