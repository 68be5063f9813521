"""What people type, in the words of the text language: 2x, |x|, e^x, αx, x², 3(x + 1) become Python's expressions.

A product without a sign is read where it can only be one. What can be read in two ways (1/2x, e^2x, |x|y|x|) is refused
with a sentence that names both.

>>> from softknee.spec.notation import plain_text
>>> plain_text("2x + |x - 1|^2")
'2*x + abs(x - 1)**2'
>>> plain_text("λ·tanh(αx)")
'lam*tanh(alpha*x)'
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from keyword import kwlist

from ..errors import FormulaError

LETTERS = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "eps", "ϵ": "eps", "ζ": "zeta", "η": "eta",
    "θ": "theta", "κ": "kappa", "λ": "lam", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho",
    "σ": "sigma", "τ": "tau", "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
}  # fmt: skip
_SIGNS = {
    "^": "**", "·": "*", "⋅": "*", "×": "*", "∗": "*", "−": "-", "–": "-", "÷": "/", "≤": "<=", "≥": ">=",
}  # fmt: skip
_RAISED = {"²": "**2", "³": "**3"}
_WORDS = {"lambda": "lam", "√": "sqrt"}
_KEYWORDS = {*kwlist} - {"lambda"}
_TOKEN = re.compile(
    r"(?P<blank>[ ]+)"
    r"|(?P<number>0[xXbBoO]\w+|(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*|√)"
    rf"|(?P<greek>[{''.join(LETTERS)}](?:_?[0-9]+)?)"
    r"|(?P<string>'[^']*'|\"[^\"]*\")"
    r"|(?P<sign>\*\*|[<>=!:]=|//|.)",
    re.DOTALL,
)


@dataclass
class _Token:
    """A word of the text. `written` is what Python reads; an operand is what a factor may stand before or behind."""

    kind: str
    written: str
    start: int
    end: int
    first: int | None = None  # the token that its operand begins with, such as the bracket that this one closes

    @property
    def is_operand_end(self) -> bool:
        return self.kind in ("number", "name", "close", "bar close", "raised")

    @property
    def is_operand_start(self) -> bool:
        return self.kind in ("name", "open", "bar open")


def plain_text(text: str) -> str:
    """The text in the plain ASCII of the language."""
    return plain(text.strip())[0]


def plain(text: str) -> tuple[str, list[int]]:
    """The same, and for each of its characters the place in the given text that it comes from."""
    tokens = _tokens(text)
    _pair(tokens)
    written, places = "", []
    last: int | None = None
    for number, token in enumerate(tokens):
        if token.kind != "blank":
            if last is not None and _is_product(tokens, last, number):
                _check(tokens, last, number, text)
                sign = "*" if last == number - 1 else "* "
                written, places = written + sign, [*places, *[token.start] * len(sign)]
            last = number
        written += token.written
        length = token.end - token.start
        places += [token.start + min(i, length - 1) for i in range(len(token.written))]
    return written, places


def _tokens(text: str) -> list[_Token]:
    tokens = []
    for match in _TOKEN.finditer(text):
        kind, word = match.lastgroup or "sign", match[0]
        usual = unicodedata.normalize("NFKC", word)  # of letters that were copied from mathematics
        if word in _RAISED:
            kind, word = "raised", _RAISED[word]
        elif kind == "greek" or usual in LETTERS:
            kind, word = "name", LETTERS[usual[0]] + usual[1:]
        elif word in "([":
            kind = "open"
        elif word in ")]":
            kind = "close"
        elif word in _KEYWORDS:
            kind = "keyword"
        word = _WORDS.get(word, word) if kind == "name" else _SIGNS.get(word, word)
        tokens.append(_Token(kind, word, match.start(), match.end()))
    return tokens


def _pair(tokens: list[_Token]) -> None:
    """Find for each bracket and bar the one that opens it, and write bars as calls of abs."""
    brackets: list[int] = []
    bars: list[tuple[int, int]] = []  # the depth of brackets around it, and its number
    last: _Token | None = None
    for number, token in enumerate(tokens):
        if token.kind == "blank":
            continue
        if token.written == "|":
            closes = last is not None and last.is_operand_end and bars and bars[-1][0] == len(brackets)
            token.kind, token.written = ("bar close", ")") if closes else ("bar open", "abs(")
            if closes:
                token.first = bars.pop()[1]
            else:
                bars.append((len(brackets), number))
        elif token.kind == "open":
            is_call = token.written == "(" and last is not None and last.kind == "name"
            brackets.append(_before(tokens, number) if is_call else number)
        elif token.kind == "close" and brackets:
            token.first = brackets.pop()
        last = token
    if bars:
        bar = tokens[bars[-1][1]]
        raise _refused("A bar | is not closed; write |...| or abs(...).", bar.start, bar.end)


def _before(tokens: list[_Token], number: int) -> int:
    number -= 1
    while number >= 0 and tokens[number].kind == "blank":
        number -= 1
    return number


def _is_product(tokens: list[_Token], left: int, right: int) -> bool:
    a, b = tokens[left], tokens[right]
    if not (a.is_operand_end and b.is_operand_start) or b.written == "[":
        return False
    if b.kind == "open":  # f(x) is a call, and f(x)(x) no product that anybody means
        return a.kind in ("number", "raised", "bar close") or (a.kind == "close" and _opens_group(tokens, a))
    return True


def _opens_group(tokens: list[_Token], close: _Token) -> bool:
    return close.first is not None and tokens[close.first].kind == "open"


def _check(tokens: list[_Token], left: int, right: int, text: str) -> None:
    """Refuse a product that could be meant otherwise."""
    a, b = tokens[left], tokens[right]
    bars = sum(token.kind.startswith("bar") for token in tokens)
    if bars > 2 and (a.kind == "bar close" or b.kind == "bar open"):
        words = "These bars can be read in more than one way; write abs(...), or * between the factors."
        raise _refused(words, b.start, b.end)
    first = left if a.first is None else a.first
    before = _before(tokens, first)
    while before >= 0 and tokens[before].written in "+-" and tokens[_before(tokens, before)].written == "**":
        before = _before(tokens, before)
    operator = tokens[before] if before >= 0 else None
    if operator is None or operator.written not in ("/", "**") or a.kind == "raised":
        return
    sign, factor = text[operator.start : operator.end], text[operator.end : a.end].strip()
    other = {"open": "(...)", "bar open": "|...|"}.get(b.kind) or text[b.start : b.end]
    ways = f"{sign}({factor} * {other}) or {sign}{factor} * {other}"
    quoted = text[operator.start : b.end]
    raise _refused(f"{quoted!r} can be read in two ways; write {ways}.", operator.start, b.end)


def _refused(sentence: str, start: int, end: int) -> FormulaError:
    error = FormulaError(sentence)
    error.span = start, end
    return error
