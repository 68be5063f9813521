"""A module as one text, for configs that hold nothing else: a name, and in parentheses what must go with it.

    srelu        srelu(delta=0.05)        softknee:srelu(delta=0.05, learn=delta)        squaf(k=16, q=0.25, z=gelu)

    text     = ["softknee:"] name ["(" [argument {"," argument}] ")"]
    argument = parameter "=" number  |  choice "=" word  |  "learn" "=" word {"+" word}  |  "per" "=" "layer"

with quotes allowed around words, and `learn=all` for all parameters. The baselines (polyrelu, polynorm, kaf, ditac) are
learned unless the text says `learn=none`. Nothing in a text is ever run. `name_of` writes the prefix, so that a reader
of a config who lacks softknee is told what is missing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from .. import zoo  # noqa: F401 - importing it announces the names of the zoo
from ..errors import MissingToolError, ParameterError, SoftkneeError, UnknownActivationError, did_you_mean
from ..kernels.squaf.arguments import sample, uniform_points
from ..nn import Squaf, make
from ..nn.baselines import Baseline, OneVector, baseline_named
from ..nn.parameters import Parameterised
from ..registry import get, holds, names
from ..spec import Activation, SoftTable
from ..spec.constraints import AtLeastOne

PREFIX = "softknee:"
_LONGEST = 1000
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TEXT = re.compile(rf"\s*({re.escape(PREFIX)})?\s*({_NAME})\s*(?:\((.*)\)\s*)?", re.DOTALL)
_ARGUMENT = re.compile(rf"\s*({_NAME})\s*=\s*(\S(?:.*\S)?)\s*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")
_WORDS = re.compile(rf"{_NAME}(?:\s*\+\s*{_NAME})*")


@dataclass(frozen=True)
class Named:
    """What a text says: the name, the parameters' numbers and choices, and what is learned (True: everything)."""

    name: str
    values: Mapping[str, Any]
    learn: tuple[str, ...] | bool = False


def module_of(text: str) -> nn.Module:
    """A new module from its text.

    >>> from softknee.surgery import module_of, name_of
    >>> module_of("srelu(delta=0.05, learn=delta)")
    SReLU(delta=0.05 (learned), per='layer')
    >>> name_of(module_of("squaf(k=16, q=0.25, z=gelu, learn=z+q)"))
    'softknee:squaf(k=16, q=0.25, alpha=24, z=gelu, window=5, learn=q+z)'
    """
    named = read_name(text)
    values = dict(named.values)
    for key in ("window", "gate"):  # the full sum; no gate
        if values.get(key) == "none":
            values[key] = None
    return make(named.name, learn=named.learn, **values)


def read_name(text: str) -> Named:
    """What a text says, checked as far as the names in it; values are checked by the module that is made."""
    if not isinstance(text, str):
        raise ParameterError(f"An activation is named by a text here, and {type(text).__name__} was given.")
    match = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ParameterError(
            f"{text[:100]!r} does not name an activation: write a name, or a name with numbers and what is learned, "
            f"such as 'srelu(delta=0.05, learn=delta)'."
        )
    name, inside = match[2], match[3]
    baseline = baseline_named(name)
    definition = get(name) if baseline is None else baseline
    arguments: dict[str, Any] = {}
    for argument in (inside or "").split(",") if (inside or "").strip() else ():
        key, value = _read_argument(text, argument)
        if key in arguments:
            raise ParameterError(f"{text!r} gives {key} twice; leave one of the two out.")
        _check_key(text, definition, key, value)
        arguments[key] = value
    arguments.pop("per", None)
    learn = arguments.pop("learn", ("all",) if baseline is not None else False)
    if baseline is not None and learn == ("none",):
        learn = False
    if learn and learn != ("all",):
        return Named(name, arguments, learn)
    return Named(name, arguments, bool(learn))


def _read_argument(text: str, argument: str) -> tuple[str, Any]:
    match = _ARGUMENT.fullmatch(argument)
    if match is None:
        raise ParameterError(
            f"{text!r}: what stands in the parentheses must be like delta=0.05 or learn=delta, with commas between, "
            f"and {argument.strip()!r} is not."
        )
    key, value = match[1], match[2]
    if number := _NUMBER.fullmatch(value):
        whole = not any(number.groups())
        return key, int(value) if whole else float(value)
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1].strip()
    if not _WORDS.fullmatch(value) or ("+" in value and key != "learn"):
        raise ParameterError(
            f"{text!r}: {key} must be a number or a word, and {value!r} is neither; a text carries one number for each "
            f"parameter, so give tensors and lists to sk.nn.make."
        )
    words = tuple(word.strip() for word in value.split("+"))
    return key, words if key == "learn" else words[0]


def _check_key(text: str, definition: Any, key: str, value: Any) -> None:
    numbers, choices = _keys(definition)
    known = [*numbers, *choices, "learn", "per"]
    if key in ("size", "dim") or (key == "per" and value != "layer"):
        raise ParameterError(
            f"{text!r}: a text can only say per=layer, because it does not know the sizes of the layers; for "
            f"per='channel' or 'neuron' change the model with sk.swap_ after it is built."
        )
    if key not in known:
        raise ParameterError(
            f"{text!r}: {definition.name} has no {key!r} that a text can carry; it takes {', '.join(known)}."
            f"{did_you_mean(key, known)}"
        )
    if isinstance(value, str) and key not in choices and key != "per":
        raise ParameterError(f"{text!r}: {key} must be a number, and {value!r} was given.")
    if key == "learn" and not isinstance(value, tuple):
        raise ParameterError(f"{text!r}: learn must be the names of parameters, as in learn=delta or learn=q+z.")


def _keys(definition: Any) -> tuple[list[str], list[str]]:
    """The arguments that are numbers, and those that may be words."""
    if isinstance(definition, Baseline):
        return list(definition.module.settings), list(definition.module.words)
    own = [p.name for p in definition.params]
    if isinstance(definition, SoftTable):
        words = ["z", "alpha", "window", "weights", "mode", "tails"]
        return [*own, *(name for name in definition.options if name != "grid")], words
    if isinstance(definition, Activation):
        learned_so = any(isinstance(p.constraint, AtLeastOne) for p in definition.params)
        return own + ["temperature"] * learned_so, list(definition.variants)
    return own, []


# -- from a module to its text ------------------------------------------------------------------------------------


def name_of(module: nn.Module, *, numbers: bool = True) -> str:
    """The text that `module_of` makes such a module from.

    Args:
        module: one of softknee, with one value of each parameter per layer.
        numbers: False leaves out the values, which a checkpoint brings: what a config needs when every layer has values
            of its own, or SQUAF a table that no function names.

    What a text cannot carry is refused with the reason.

    >>> import softknee as sk
    >>> from softknee.surgery import name_of
    >>> name_of(sk.nn.SReLU(delta=0.05, learn=True)), name_of(sk.nn.SReLU(delta=0.05, learn=True), numbers=False)
    ('softknee:srelu(delta=0.05, learn=delta)', 'softknee:srelu(learn=delta)')
    """
    if not isinstance(module, Parameterised):
        raise ParameterError(
            f"Only modules of softknee have such a text, and {type(module).__name__} is none; give one of them, such "
            "as sk.nn.SReLU(), and of a whole model its activations one by one."
        )
    definition: Any = getattr(module, "definition", None)
    baseline = baseline_named(module.title) if isinstance(module, OneVector) else None
    if baseline is not None and isinstance(module, baseline.module):
        definition = baseline
    elif definition is None or not _found_by_name(definition):
        raise ParameterError(
            f"{module.title!r} is not what its name gives everywhere; softknee.register() it first, here and wherever "
            f"the text is read."
        )
    if module.granularity.per != "layer":
        raise ParameterError(
            f"{module.title}: a text carries one value for each layer, and this module has {module.granularity}."
        )
    if numbers and any(module.effective(p).device.type == "meta" for p in module.params):
        raise ParameterError(f"{module.title} is on the meta device and has no values yet; pass numbers=False.")
    if isinstance(module, OneVector):
        parts = _baseline_parts(module, numbers)
    else:
        parts = _squaf_parts(module, numbers) if isinstance(module, Squaf) else _parts(module, numbers)
    if isinstance(module, OneVector):
        parts += [] if module.learned else ["learn=none"]
    elif module.learned:
        parts.append(f"learn={'+'.join(module.learned)}")
    return f"{PREFIX}{definition.name}({', '.join(parts)})" if parts else f"{PREFIX}{definition.name}"


def _found_by_name(definition: Any) -> bool:
    if not isinstance(definition, SoftTable):
        return holds(definition)
    return definition.name in names() and get(definition.name).with_weights(definition.weights) is definition


def _parts(module: Parameterised, numbers: bool) -> list[str]:
    parts = [_number(module, p) for p in module.params] if numbers else []
    for p in module.params:
        if isinstance(p.constraint, AtLeastOne) and p.constraint != AtLeastOne() and p.name in module.learned:
            parts.append(f"temperature={p.constraint.temperature!r}")
    return parts


def _baseline_parts(module: OneVector, numbers: bool) -> list[str]:
    """The settings that are not the usual ones; the vector itself only where it is where it starts."""
    usual = type(module)()
    changed = {name: getattr(module, name) for name in module.settings if getattr(module, name) != getattr(usual, name)}
    if numbers:
        vector = module.effective(module.vector).detach().cpu()
        start = type(module)(**changed, dtype=vector.dtype)
        if not torch.equal(vector, start.effective(module.vector).detach()):
            raise ParameterError(
                f"{module.title}: its numbers {module.vector.name} are not those it usually starts from, and a text "
                f"cannot carry them; pass numbers=False and let the checkpoint carry them."
            )
    return [f"{name}={'none' if value is None else value}" for name, value in changed.items()]


def _squaf_parts(module: Squaf, numbers: bool) -> list[str]:
    if module.k is None:
        raise ParameterError(f"{module.title}: a text cannot carry the points of a general grid.")
    q, alpha, _ = module.params
    parts = [f"k={module.k}"]
    if numbers:
        parts += [_number(module, q), _number(module, alpha), f"z={_sampled(module)}"]
    if module.window_is_auto:
        parts += ["window=auto", f"tolerance={module.tolerance!r}"]
    else:
        parts.append(f"window={module.window or 'none'}".lower())
    parts += [f"weights={module.weights}"] if module.weights != "gaussian" else []
    parts += [f"tails={module.tails}"] if module.tails != "flat" else []
    return parts + ([f"mode={module.mode}"] if module.mode != "soft" else [])


def _number(module: Parameterised, p: Any) -> str:
    """The fewest digits that give the value back, in the precision it has."""
    value = module.effective(p).detach().reshape(())
    number = value.item()
    if p.name in module.learned and not p.constraint.allows_learned(number):
        raise ParameterError(
            f"{module.title}: {p.name} is {number!r}, from where it cannot be learned (it must be "
            f"{p.constraint.learned_words}); pass numbers=False and let the checkpoint carry it."
        )
    texts = (f"{number:.{digits}g}" for digits in range(1, 17))
    fits = (text for text in texts if torch.tensor(float(text), dtype=value.dtype) == value.cpu())
    return f"{p.name}={next(fits, repr(number))}"


def _sampled(module: Squaf) -> str:
    """The name of the function whose values at the grid points are z."""
    assert module.k is not None
    q, _, z = (module.effective(p).detach().cpu() for p in module.params)
    if (name := sampled_name(z.reshape(-1), q=q.reshape(()), k=module.k)) is not None:
        return name
    raise ParameterError(
        f"{module.title}: its table z is not the sample of a function that has a name, so that a text cannot carry it; "
        f"pass numbers=False and let the checkpoint carry it."
    )


def sampled_name(z: Tensor, *, q: Tensor, k: int) -> str | None:
    """The name of the function whose values at i q are z, i = -k..k; None if no function with its defaults does."""
    points = uniform_points(q.double(), k=k)
    # Where z was sampled, q still had all its digits: one unit in the last place of it moves a value by as much.
    near = 4 * torch.finfo(z.dtype).eps * max(1.0, float(points[-1]))
    for name in ("relu", "gelu", *names()):
        if isinstance(get(name), Activation):
            values = sample(name, points=points)
            if torch.allclose(values, z.double(), rtol=0.0, atol=near):
                return name
    return None


# -- the names of softknee as hidden_act / activation_function of transformers' configs -------------------
#
# Names that transformers has itself (gelu, relu, silu, ...) keep its meaning when they stand alone, which is the same
# function at our default values (its prelu is learned); with the prefix "softknee:", or with parentheses, a name is
# ours.


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
