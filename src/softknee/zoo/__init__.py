"""The functions. One line each: the name, and the file that defines it (read when first asked for)."""

from functools import partial
from importlib import import_module
from typing import Any

from ..registry import provide


def _load(file: str, name: str) -> Any:
    return getattr(import_module(f"{__name__}.{file}"), name)


_HOMES = {
    "relu": ("relu", "leaky_relu", "prelu", "rrelu", "relu6", "hardtanh", "clamp", "hardswish"),
    "elu": ("elu", "celu", "selu"),
    "softplus": ("softplus", "logsigmoid", "squareplus"),
    "swish": ("swish", "quick_gelu"),
    "gelu": ("gelu", "gelu_tanh", "gelu_10", "lambda_gelu"),
    "mish": ("mish", "tanhexp", "hard_mish"),
    "bounded": ("tanh", "sigmoid", "softsign", "hardsigmoid", "sparse_sigmoid", "laplace"),
    "shrink": ("softshrink", "hardshrink", "tanhshrink", "threshold"),
    "squared": ("relu2", "star_relu", "xielu"),
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
# What timm, transformers and Keras call them, where that is another name.
_ALIASES = {
    "swish": ("silu",),
    "leaky_relu": ("lrelu",),
    "hardtanh": ("hard_tanh",),
    "hardswish": ("hard_swish", "hard_silu"),
    "hardsigmoid": ("hard_sigmoid",),
    "logsigmoid": ("log_sigmoid",),
    "softshrink": ("soft_shrink",),
    "hardshrink": ("hard_shrink",),
    "tanhshrink": ("tanh_shrink",),
    "relu2": ("relu_squared", "squared_relu"),
    "smelu": ("sparse_plus",),
    "gelu_tanh": ("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"),
    "gelu": ("gelu_python",),
}

for _file, _names in _HOMES.items():
    for _name in _names:
        provide(_name, partial(_load, _file, _name), also=_ALIASES.get(_name, ()))
