"""Every network by its name: the small ones, those of the papers, and timm's.

>>> build("mlp", widths=[4, 3, 2], activation="torch:gelu")[1]
GELU(approximate='none')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from ..errors import ParameterError, did_you_mean, need_package
from . import clicks, vision_networks
from .networks import SMALL, kan

PAPERS: dict[str, Callable[..., nn.Module]] = {**vision_networks.NETWORKS, "click_model": clicks.click_model}
"""The networks of the papers; their `activation` is a function that returns a new module at each call."""

BUILDERS: dict[str, Callable[..., nn.Module]] = {
    **SMALL,
    "kan": kan,
    **{name: partial(vision_networks.build_by_name, name) for name in vision_networks.NETWORKS},
    "click_model": clicks.build_by_name,
}
"""By the name that a checkpoint holds; their `activation` is a name."""

_TIMM = "timm:"
# A prefix such as "hf-hub:" would load a model, and its code's choices, from elsewhere.
_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)?")
# These read files or the network; weights come from the checkpoint alone.
_REFUSED = ("pretrained", "checkpoint_path", "cache_dir", "file", "url")


def build(builder: str, /, **arguments: Any) -> Any:
    """The network that a builder of this name makes from these arguments; nothing is read and nothing downloaded."""
    if builder.startswith(_TIMM):
        return _timm(builder.removeprefix(_TIMM), arguments)
    if builder not in BUILDERS:
        known = ", ".join(repr(name) for name in BUILDERS)
        near = did_you_mean(builder, BUILDERS)
        raise ParameterError(f"There is no builder {builder!r:.60}; there are {known} and {_TIMM + 'NAME'!r}.{near}")
    try:
        return BUILDERS[builder](**arguments)
    except TypeError as error:
        raise ParameterError(f"The network {builder!r} was given arguments that it does not take: {error}.") from error


def _timm(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    timm = need_package("timm", f"The builder {_TIMM + name!r} needs the package 'timm'", "vision")
    for key in arguments:
        if key.startswith(_REFUSED):
            raise ParameterError(f"timm's argument {key!r} loads something from elsewhere; a checkpoint must not.")
    if not _NAME.fullmatch(name) or not timm.is_model(name):
        raise ParameterError(f"timm has no model {name!r:.60}.")
    return timm.create_model(name, pretrained=False, **arguments)
