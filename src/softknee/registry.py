"""Names to definitions: the zoo's own, the user's, and those of installed packages (entry points).

One grammar names a function wherever one is wanted: `sk.get`, `sk.nn.make`, `sk.swap_`, recipes, the configuration of
transformers, the workbench and the command.

    srelu                                    a name
    srelu(delta=0.05, learn=delta)           a name with values, and what a module of it learns
    srelu(preset=paper)                      a name with values that have a name
    knee.json                                a file that `sk.save` wrote
    x * sigmoid(2 * x)                       a formula
    mollify(relu, box, width=0.5)            an engine of `sk.design`

    text     = ["softknee:"] (name ["(" [argument {"," argument}] ")"] | file | formula)
    argument = parameter "=" number  |  choice "=" word  |  "preset" "=" word
             | "learn" "=" word {"+" word}  |  "per" "=" "layer"

Quotes may stand around words; `learn=all` means every parameter, `learn=none` nothing. Nothing in a text is ever run.
Formulas and engines are read by `softknee.design`. A definition is built when it is first needed, because building
needs SymPy and `import softknee` should not wait for it.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

from .errors import DefinitionError, ParameterError, UnknownActivationError, did_you_mean, same_name

ENTRY_POINTS = "softknee.activations"
FILE_ENDING = ".json"  # a name that ends so is a file that holds a definition
PREFIX = "softknee:"
_CONSTANTS = ("x", "pi", "e")
_LONGEST = 1000
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_CALL = re.compile(rf"({_NAME})\s*\((.*)\)", re.DOTALL)
_ARGUMENT = re.compile(rf"\s*({_NAME})\s*=(?!=)\s*(.*?)\s*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")
_WORDS = re.compile(rf"{_NAME}(?:\s*\+\s*{_NAME})*")


class Definition(Protocol):
    """What everything with a name in softknee has in common."""

    @property
    def name(self) -> str: ...

    def __call__(self, input: Any, **values: Any) -> Any: ...


_loaders: dict[str, Callable[[], Any]] = {}
_aliases: dict[str, str] = {}
_built: dict[str, Any] = {}
# What a registered name stood for before: a loader, or the name it was an alias of.
_beneath: dict[str, tuple[Callable[[], Any] | None, str | None]] = {}
_shipped: dict[str, Callable[[], Any]] = {}
_plugins_read = False
# What a text of the formula language stands for, as long as anybody has it.
_texts: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()

# What rooms above do for those below, which may not import them. The front page sets it, as it is always there.
_services: dict[str, Callable[..., Any]] = {}


def set_services(**services: Callable[..., Any]) -> None:
    """Tell the rooms below how to do what needs the rooms above them."""
    _services.update(services)


def service(name: str) -> Callable[..., Any]:
    """The function that a room above does this with."""
    return _services[name]


def provide(name: str, loader: Callable[[], Any], *, also: tuple[str, ...] = ()) -> None:
    """Announce a definition that is built by `loader` when first needed."""
    _loaders[name] = loader
    _shipped[name] = loader
    for alias in also:
        _aliases[alias] = name


def register(activation: Any, *, replace: bool = False) -> Any:
    """Make a definition of your own available everywhere a name is: `sk.get`, `sk.nn.make`, studies.

    Returns the definition, so that it can be used as `swoosh = sk.register(Activation("swoosh", ...))`.
    """
    name = getattr(activation, "name", None)
    if not isinstance(name, str) or not callable(activation):
        raise DefinitionError(
            f"register() takes a definition (an Activation or a Rowwise), and {type(activation).__name__} was given."
        )
    if not name.isidentifier():
        raise DefinitionError(f"The name {name!r} must be a Python identifier, so that it can be a module name too.")
    _read_plugins()
    if (name in _loaders or name in _aliases) and not replace:
        raise DefinitionError(f"There is an activation {name!r} already; pass replace=True to put yours in its place.")
    _beneath.setdefault(name, (_loaders.get(name), _aliases.get(name)))
    _aliases.pop(name, None)
    _loaders[name] = lambda: activation
    _built[name] = activation
    _texts.clear()
    return activation


def unregister(name: str) -> None:
    """Take back what `register` did: a name that was there before stands for what it stood for."""
    loader, alias = _beneath.pop(name, (_shipped.get(name), None))
    _loaders.pop(name, None)
    _built.pop(name, None)
    _texts.clear()
    if loader is not None:
        _loaders[name] = loader
    if alias is not None:
        _aliases[name] = alias


def names() -> tuple[str, ...]:
    """Every name there is, in the order of the alphabet."""
    _read_plugins()
    return tuple(sorted({*_loaders, *_aliases}))


class Resolved(NamedTuple):
    """What a text or an object stands for.

    definition: the function: an Activation, a SoftTable, a Rowwise, or a baseline of `softknee.nn.baselines`.
    values:     numbers and words for its parameters.
    learn:      the parameters that a module learns; True for all, None where nothing was said.
    """

    definition: Any
    values: Mapping[str, Any] = {}
    learn: tuple[str, ...] | bool | None = None

    def as_definition(self) -> Any:
        """The definition with the values as its parameters' defaults."""
        if not self.values and not self.learn:
            return self.definition
        if self.learn or not hasattr(self.definition, "with_defaults"):
            raise ParameterError(
                f"The text gives {self.definition.name!r} what only a module has; sk.nn.make takes such a text."
            )
        return self.definition.with_defaults(**self.values)


def resolve(function: Any, *, params: Sequence[Any] = ()) -> Resolved:
    """The function that a text, a path, a formula or a definition stands for; any other object comes back as it is.

    Args:
        function: see the head of this module; a SymPy expression or a number is a formula.
        params: parameters (`softknee.spec.Param`) that a formula may contain.

    >>> from softknee.registry import resolve
    >>> resolve("softknee:srelu(delta=0.05, learn=delta)")
    Resolved(definition=<activation srelu(delta=1)>, values={'delta': 0.05}, learn=('delta',))
    >>> resolve("srelu(preset=paper)").values
    {'delta': 0.01}
    """
    if isinstance(function, int | float) or hasattr(function, "free_symbols"):
        return Resolved(function if isinstance(function, bool) else service("read_expression")(function))
    if not isinstance(function, str | os.PathLike):
        return Resolved(function)
    text = os.fspath(function).strip().removeprefix(PREFIX).strip()
    if text.endswith(FILE_ENDING):
        return Resolved(service("load_file")(text))
    if text.isidentifier() and text not in _CONSTANTS and text not in (p.name for p in params):
        return Resolved(_by_name(text))
    if (call := resolve_call(text)) is not None:
        return call
    key = (text, *params)
    if (made := _texts.get(key)) is None:
        made = _texts[key] = service("read_text")(text, params=params)
    return Resolved(made)


def resolve_call(text: str) -> Resolved | None:
    """A name with arguments that all have the form key=value; None for a text of another form."""
    call = _CALL.fullmatch(text) if len(text) <= _LONGEST else None
    if call is None or (call[1] not in names() and call[1] in service("engines")()):
        return None
    arguments = [_ARGUMENT.fullmatch(part) for part in call[2].split(",")] if call[2].strip() else []
    if None in arguments:
        return None
    definition = _by_name(call[1])
    values: dict[str, Any] = {}
    for key, word in (argument.groups() for argument in arguments if argument):
        if key in values:
            raise ParameterError(f"{text!r} gives {key} twice; leave one of the two out.")
        values[key] = _read_value(text, key, word)
        if key != "preset":
            _check_key(text, definition, key, values[key])
    values.pop("per", None)
    learn = values.pop("learn", None)
    values = with_preset(definition, values)
    if learn in (("all",), ("none",)):
        learn = learn == ("all",)
    return Resolved(definition, values, learn)


def with_preset(definition: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with those of a preset in the place of its name; what stands beside it wins."""
    others = dict(values)
    preset = others.pop("preset", None)
    if preset is None:
        return others
    known = getattr(definition, "presets", {})  # a baseline and a function of rows have none
    if not isinstance(preset, str) or preset not in known:
        has = f"it has {' and '.join(map(repr, known))}" if known else "it has its defaults alone; leave preset out"
        raise ParameterError(f"{definition.name} has no preset {preset!r}; {has}.{did_you_mean(str(preset), known)}")
    return {**known[preset], **others}


def get(name: str | os.PathLike[str], *, preset: str | None = None) -> Any:
    """The definition that a text stands for, see `resolve`; values in it become the parameters' defaults."""
    if preset is not None:
        definition, values, learn = resolve(name)
        return Resolved(definition, with_preset(definition, {"preset": preset, **values}), learn).as_definition()
    if type(name) is str and name in _built and name not in _CONSTANTS and callable(_built[name]):
        return _built[name]
    if not isinstance(name, str | os.PathLike):
        raise UnknownActivationError(f"An activation is asked for by name, and {type(name).__name__} was given.")
    definition = resolve(name).as_definition()
    if not callable(definition):
        raise UnknownActivationError(f"{name!r} is a module without a definition; sk.nn.make({str(name)!r}) makes it.")
    return definition


def _by_name(name: str) -> Any:
    if name not in _loaders and name not in _aliases:
        _read_plugins()
    key = _aliases.get(name, name)
    if key not in _built:
        if key not in _loaders:
            if (baseline := service("find_baseline")(name)) is not None:
                return baseline
            known = names()
            if (other := same_name(name, known)) is not None:
                return _by_name(other)
            raise UnknownActivationError(
                f"There is no activation named {name!r}.{did_you_mean(name, known)} "
                f"softknee.names() lists all {len(known)}, and softknee.register() adds your own."
            )
        _built[key] = _loaders[key]()
    return _built[key]


def _read_value(text: str, key: str, word: str) -> Any:
    if number := _NUMBER.fullmatch(word):
        return float(word) if any(number.groups()) else int(word)
    if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"":
        word = word[1:-1].strip()
    if not _WORDS.fullmatch(word) or ("+" in word and key != "learn"):
        raise ParameterError(
            f"{text!r}: {key} must be a number or a word, and {word!r} is neither; a text carries one number for each "
            f"parameter, so give tensors and lists to sk.nn.make."
        )
    if key == "learn":
        return tuple(part.strip() for part in word.split("+"))
    return None if word == "none" else word  # window=none: the full sum


def _check_key(text: str, definition: Any, key: str, value: Any) -> None:
    numbers, words = definition.text_arguments
    known = [*numbers, *words, "learn", "per"]
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
    if not isinstance(value, int | float | tuple) and key not in words and key != "per":
        raise ParameterError(f"{text!r}: {key} must be a number, and {value or 'none'!r} was given.")
    if key == "learn" and not isinstance(value, tuple):
        raise ParameterError(f"{text!r}: learn must be the names of parameters, as in learn=delta or learn=q+z.")


def holds(definition: Any) -> bool:
    """Whether asking for a definition's name gives that very definition."""
    return built(definition.name) is definition


def ships(definition: Any) -> bool:
    """Whether a definition is one that every installation has under its name."""
    loader = _shipped.get(definition.name)
    return loader is not None and holds(definition) and loader() is definition


def built(name: str) -> Any:
    """The definition that has that name here, if it was needed before; None otherwise."""
    return _built.get(_aliases.get(name, name))


def restore(name: str, index: tuple[str, ...]) -> Any:
    """The (derivative of the) definition of that name; how a definition is unpickled."""
    try:
        activation = get(name)
    except UnknownActivationError as error:
        raise UnknownActivationError(
            f"A pickle holds the activation {name!r} by its name, and nothing has that name here; softknee.register() "
            f"it as where the pickle was written, or use the version of softknee that wrote it."
        ) from error
    return activation.partial(*index) if index else activation


def remake(recipe: str, name: str, params: tuple[Any, ...], index: tuple[str, ...]) -> Any:
    """The (derivative of the) definition that a recipe makes; how one that an engine made is unpickled."""
    activation = service("remake")(recipe, name, params)
    return activation.partial(*index) if index else activation


def _read_plugins() -> None:
    """Entry points are looked up once, the first time a name is not one of ours or all are listed."""
    global _plugins_read
    if not _plugins_read:
        _plugins_read = True
        for point in entry_points(group=ENTRY_POINTS):
            _loaders.setdefault(point.name, point.load)
