"""The names of softknee as `hidden_act` / `activation_function` of transformers' configs.

Names that transformers has itself (gelu, relu, silu, ...) keep its meaning when they stand alone, which is the same
function at our default values (its prelu is learned); with the prefix "softknee:", or with parentheses, a name is ours.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

from ..errors import MissingToolError, SoftkneeError, UnknownActivationError, did_you_mean
from ..registry import names
from .activation_text import PREFIX, module_of, read_name


def register_transformers() -> None:
    """Make every name of softknee, and every text with values, a valid activation in transformers' configs.

    To be called once in every process before a model is built or loaded with `from_pretrained`: a config is a text, and
    transformers knows what it means only after this call. Without it `from_pretrained` stops with transformers' own
    KeyError, whose message is the text that starts with "softknee:". Calling again does no harm; names registered later
    work too. A text gives a new module each time it is looked up, so that layers share no parameters.

    Models that ask transformers' second table, ACT2CLS (RT-DETR and a few more of vision), know the names that there
    are when this is called, and no texts with values.

        sk.register_transformers()
        config = transformers.BertConfig(hidden_act="srelu(delta=0.05, learn=delta)")
        model = transformers.GPT2LMHeadModel.from_pretrained(folder, activation_function="softknee:lambda_gelu")
    """
    try:
        activations = import_module("transformers.activations")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "transformers":
            raise
        raise MissingToolError(
            "register_transformers() needs the package 'transformers', which is not installed. Install it with: "
            "pip install 'softknee[text]'"
        ) from error
    table = activations.ACT2FN
    if not isinstance(table, _Answers):
        # The table is one object that every model's file has imported, so it is this object that must learn to answer.
        table.__class__ = type(type(table).__name__, (_Answers, type(table)), {})
    for name in names():
        activations.ACT2CLS.setdefault(name, functools.partial(module_of, PREFIX + name))


class _Answers:
    """What transformers' table learns: to answer to our texts."""

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key):  # pyright: ignore[reportAttributeAccessIssue] - the table's own, which follows
            return True
        try:
            return isinstance(key, str) and bool(read_name(key))
        except SoftkneeError:
            return False

    def __missing__(self, key: object) -> Any:
        """What the table holds for a key of ours: it is called, with the keywords beside it, at every lookup."""
        if not isinstance(key, str):
            raise KeyError(key)
        try:
            read_name(key)
        except UnknownActivationError as error:
            raise UnknownActivationError(_unknown(key, self)) from error
        return module_of, {"text": key}


def _unknown(key: str, table: Any) -> str:
    bare = key.strip().removeprefix(PREFIX).partition("(")[0].strip()
    known = [*table, *names()]
    return (
        f"Neither transformers nor softknee has an activation {bare!r}.{did_you_mean(bare, known)} softknee.names() "
        f"lists ours, and softknee.register() adds your own."
    )
