"""The fixed table of what a checkpoint can name: "mlp" and "cnn" of `networks`, and "timm:NAME"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from ..errors import MissingToolError, ParameterError
from .networks import BUILDERS, build

_PREFIX = "timm:"
# A prefix such as "hf-hub:" would load a model, and its code's choices, from elsewhere.
_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)?")
# These read files or the network; weights come from the checkpoint alone.
_REFUSED = ("pretrained", "checkpoint_path", "cache_dir", "file", "url")


def build_network(builder: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The network that a builder makes from these arguments; no file is read and nothing is downloaded.

    >>> build_network("mlp", {"widths": [4, 3, 2], "activation": "torch:gelu"})[1]
    GELU(approximate='none')
    """
    if builder.startswith(_PREFIX):
        return _timm(builder.removeprefix(_PREFIX), arguments)
    if builder not in BUILDERS:
        known = ", ".join(repr(name) for name in BUILDERS)
        raise ParameterError(f"There is no builder {builder!r:.60}; there are {known} and {_PREFIX + 'NAME'!r}.")
    return build(builder, **arguments)


def _timm(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise MissingToolError(
            f"The builder {_PREFIX + name!r} needs the package 'timm', which is not installed. Install it with: "
            f"pip install timm"
        ) from error
    for key in arguments:
        if key.startswith(_REFUSED):
            raise ParameterError(
                f"timm's argument {key!r} loads something from elsewhere, which a checkpoint must not."
            )
    if not _NAME.fullmatch(name) or not timm.is_model(name):
        raise ParameterError(f"timm has no model {name!r:.60}.")
    return timm.create_model(name, pretrained=False, **arguments)
