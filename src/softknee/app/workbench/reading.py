"""What the page says a function is, a text and numbers, as a definition and values; and errors with their place.

    {"text": "mollify(hardtanh, triweight, width=delta)", "values": {"delta": 0.4}}
    {"text": "x * sigmoid(beta * x)", "values": {"beta": 1.5}, "real": ["beta"]}

A name that the text has and nobody knows is a parameter, 1 without a value; `real` are those that may be 0 or below.
"""

from __future__ import annotations

import ast
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...design import definition
from ...errors import FormulaError, ParameterError, SoftkneeError, same_name
from ...lab.figures import Definition
from ...lab.gallery import exhibit
from ...registry import get, names
from ...spec import Activation, Param, SoftTable
from ...spec.notation import plain
from ...spec.parse import LONGEST, tree_of

MOST_PARAMETERS = 12
_NEW_WIDTH = "delta"
_QUOTED = re.compile(r"'([^']+)'")
_LISTED, _LONGEST_SENTENCE = re.compile(r"; known are [^.]*\."), 160  # every function of the language, say
_OF_COMMAND = " A parameter of your own is declared beside"
# A table as the gallery shows it; its points and its window are not for a slider.
_TABLE = ("alpha", "q")


@dataclass(frozen=True)
class ChosenFunction:
    """A function as the page asks for it: the definition, a number for every parameter, and options of a table."""

    act: Definition
    text: str
    values: Mapping[str, float]
    options: Mapping[str, Any]
    declared: tuple[str, ...] = ()

    @property
    def given(self) -> dict[str, Any]:
        """What a call of the definition takes."""
        return {**self.options, **self.values}

    @property
    def points(self) -> tuple[float, ...]:
        """The values of a table at the points of its grid."""
        k, q, z = self.options["k"], self.values["q"], self.options["z"]
        return tuple(z) if z != "relu" else tuple(max(i * q, 0.0) for i in range(-k, k + 1))

    @property
    def params(self) -> tuple[Param, ...]:
        """The parameters that are numbers and can be moved."""
        if isinstance(self.act, SoftTable):
            return tuple(p for p in self.act.params if isinstance(p, Param) and p.name in _TABLE)
        return self.act.params

    @property
    def is_named(self) -> bool:
        """Whether the text is the name of a function of the zoo or of a package."""
        return same_name(self.text, names()) is not None


def read(query: Any) -> ChosenFunction:
    """The function that the page asks for, or the error that says what is wrong with it."""
    if not isinstance(query, Mapping) or not isinstance(query.get("text"), str):
        raise FormulaError("A function is a text with numbers for its parameters; no text was sent.")
    text = query["text"].strip()
    if len(text) > LONGEST:
        raise FormulaError(f"The text has {len(text):,} characters, and {LONGEST:,} are allowed.")
    if not text:
        raise FormulaError("Write a function: a name of the zoo, a formula in x, or a call such as mollify(relu, box).")
    values, real = _numbers(query.get("values") or {}), query.get("real") or []
    act, declared = _definition(text, tuple(sorted(map(str, real))))
    options: dict[str, Any] = {}
    if isinstance(act, SoftTable):
        options = {name: value for name, value in exhibit(act.name).shared.items() if name not in _TABLE}
        start: dict[str, Any] = {**{p.name: p.default for p in act.params}, **exhibit(act.name).shared}
        numbers: dict[str, float] = {name: float({**start, **values}[name]) for name in _TABLE}
        z = [values.get(f"z{i}", z) for i, z in enumerate(ChosenFunction(act, text, numbers, options).points)]
        if any(f"z{i}" in values for i in range(len(z))):
            options["z"] = tuple(z)
    else:
        # Numbers of parameters that the text no longer has are let go: the page may still be holding them.
        numbers = {p.name: values.get(p.name, p.default) for p in act.params}
    if len(numbers) > MOST_PARAMETERS:
        raise FormulaError(f"The function has {len(numbers)} parameters, and the page moves {MOST_PARAMETERS} at most.")
    act.check({**options, **numbers})
    return ChosenFunction(act, text, numbers, options, declared)


def _numbers(values: Any) -> dict[str, float]:
    if not isinstance(values, Mapping) or len(values) > 4 * MOST_PARAMETERS:
        raise ParameterError("The values of a function are numbers by the names of its parameters.")
    numbers = {}
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ParameterError(f"The parameter {str(name)[:40]!r} takes a finite number.")
        numbers[str(name)] = float(value)
    return numbers


@lru_cache(maxsize=64)
def _definition(text: str, real: tuple[str, ...]) -> tuple[Definition, tuple[str, ...]]:
    """The definition, and the names that it took for new parameters."""
    if (name := same_name(text, names())) is not None:
        act = get(name)
        if not isinstance(act, Activation | SoftTable):
            raise FormulaError(f"{text!r} is a function of whole rows, which has no curve to draw.")
        return act, ()
    declared: dict[str, str] = {}
    while True:
        try:
            return definition(text, params=declared), tuple(declared)
        except FormulaError as error:
            name = error.unknown
            if name is None or name in declared or len(declared) > MOST_PARAMETERS:
                raise
            declared[name] = "1.0:real" if name in real else "1.0"


# -- errors -----------------------------------------------------------------------------------------------


def refusal(error: SoftkneeError, text: str) -> dict[str, Any]:
    """The error as the page shows it: a sentence, and the characters to mark."""
    message = str(error).partition(_OF_COMMAND)[0]
    stripped = text.strip()
    span = getattr(error, "span", None)
    if "cannot be read: SyntaxError" in message:
        near = f" at {stripped[slice(*span)]!r}" if span and stripped[slice(*span)].strip() else " at its end"
        message = f"This cannot be read as a formula: something is missing or too much{near}."
    if "plain printable ASCII" in message:
        written, places = plain(stripped)
        sign, place = next(
            (s, p) for s, p in zip(written, places, strict=True) if not (s.isascii() and s.isprintable())
        )
        usual = unicodedata.normalize("NFKC", sign)
        cure = f"; write {usual}" if usual.isascii() and usual.isprintable() and usual.strip() else ""
        message, span = f"The sign {sign!r} is not allowed in a formula{cure}.", (place, place + 1)
    span = _narrowed(message, stripped, span)
    message = _LISTED.sub(".", message) if len(message) > _LONGEST_SENTENCE else message
    ahead = len(text) - len(text.lstrip())
    reply: dict[str, Any] = {"error": message, "kind": type(error).__name__}
    if span is not None:
        reply["span"] = [span[0] + ahead, max(span[1], span[0] + 1) + ahead]
    return reply


def _narrowed(message: str, text: str, span: tuple[int, int] | None) -> tuple[int, int] | None:
    """The span of the first quoted word of the sentence, where that word stands inside the blamed part."""
    first, behind = span or (0, len(text))
    for word in _QUOTED.findall(message):
        place = re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", text[first:behind])
        if place is not None and word != text:
            return first + place.start(), first + place.end()
    return span


def slider_for_width(text: str) -> dict[str, Any] | None:
    """The same text with a parameter in the place of the number that `mollify` has as its width, and that number."""
    try:
        body = tree_of(text.strip()).body
    except FormulaError:
        return None
    if not (isinstance(body, ast.Call) and isinstance(body.func, ast.Name) and body.func.id == "mollify"):
        return None
    width = (
        next((keyword.value for keyword in body.keywords if keyword.arg == "width"), None)
        or (body.args[2:3] or [None])[0]
    )
    if not isinstance(width, ast.Constant) or isinstance(width.value, bool) or not isinstance(width.value, int | float):
        return None
    number, stripped = float(width.value), text.strip()
    if number <= 0 or width.end_col_offset is None or _NEW_WIDTH in stripped:
        return None
    changed = stripped[: width.col_offset] + _NEW_WIDTH + stripped[width.end_col_offset :]
    return {"text": changed, "values": {_NEW_WIDTH: number}, "word": "width"}
