r"""The mathematics of the ledger is written once, as LaTeX between dollar signs; a terminal reads it in plain signs.

Only what the claims use is known here. A command that is not known is an error and not a backslash on a screen.

>>> plain(r"$\sup_x \lvert f_\delta - f\rvert = 3\delta/16$ at $x = 0$, not $e^{-1/2}$")
'sup_x |f_δ - f| = 3δ/16 at x = 0, not e^(-1/2)'
>>> cell(r"the slope |f'| and $\lvert f'\rvert$")
"the slope \\|f'\\| and $\\lvert f'\\rvert$"
"""

import re

from softknee.errors import FormulaError

_NAMES = (
    "alpha beta gamma delta varepsilon eta lambda pi sigma phi varphi omega chi Delta Phi int sum partial infty in to "
    "le ge ne approx equiv sim cdot times pm ast lvert rvert mid lfloor rfloor ldots sqrt"
)
_WRITTEN = "α β γ δ ε η λ π σ φ φ ω χ Δ Φ ∫ Σ ∂ ∞ ∈ → ≤ ≥ ≠ ≈ ≡ ∼ · × ± ∗ | | | ⌊ ⌋ ... √"
_AS_THEY_ARE = ("cos", "sup", "max", "min", "log", "ln", "exp", "tanh", "arctan", "mathrm", "mathbb", "frac")
_SIGNS = dict(zip(_NAMES.split(), _WRITTEN.split(), strict=True)) | {name: name for name in _AS_THEY_ARE}
_SIGNS |= {"left": "", "right": "", ",": " "}
# A blank after these only ends the command's name; after the others it is part of the formula.
_TIGHT = {"lvert", "lfloor", "int", "sum", "partial", "sqrt"}
_RAISED = str.maketrans("0123456789+-n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ")
_INNERMOST = re.compile(r"(mathrm|mathbb|√|\^|_)\{([^{}]*)\}")
_FRACTION = re.compile(r"frac\{([^{}]*)\}\{([^{}]*)\}")


def plain(text: str) -> str:
    """The text with its formulas in signs that any terminal shows."""
    return re.sub(r"\$([^$]*)\$", lambda match: _formula(match.group(1)), text)


def cell(text: str) -> str:
    """The text as it may stand in a cell of a Markdown table, where a bare bar would end the cell."""
    parts = text.split("$")
    if any("|" in formula for formula in parts[1::2]):
        raise FormulaError(f"Write \\lvert and \\rvert for the bars in {text!r}: a bar would end the table's cell.")
    return "$".join(part if index % 2 else part.replace("|", r"\|") for index, part in enumerate(parts))


def _formula(tex: str) -> str:
    text = re.sub(r"\\([A-Za-z]+|,) ?", _sign, tex)
    text = re.sub(r"\^([^{\s])", r"^{\1}", text)
    while match := _INNERMOST.search(text) or _FRACTION.search(text):
        put = _group(*match.groups()) if match.re is _INNERMOST else _fraction(*match.groups())
        text = text[: match.start()] + put + text[match.end() :]
    return text.replace("{", "").replace("}", "")


def _sign(match: re.Match[str]) -> str:
    name = match.group(1)
    if name not in _SIGNS:
        raise FormulaError(
            f"The ledger does not know the LaTeX command \\{name}; add it to the signs in papers/text.py."
        )
    return _SIGNS[name] + (" " if match.group(0).endswith(" ") and name not in _TIGHT else "")


def _group(kind: str, inside: str) -> str:
    if kind == "mathrm":
        return inside
    if kind == "mathbb":
        return {"R": "ℝ"}.get(inside, inside)
    if kind == "^" and not set(inside) - set("0123456789+-n"):
        return inside.translate(_RAISED)
    whole = re.fullmatch(r"." if kind == "√" else r"\w+|.", inside)
    return kind + (inside if whole else f"({inside})")


def _fraction(above: str, below: str) -> str:
    parts = [part if re.fullmatch(r"[\w.√²³ ]+", part) else f"({part})" for part in (above, below)]
    return f"{parts[0]}/{parts[1]}" if re.fullmatch(r"\w+[²³]?", parts[1]) else f"{parts[0]}/({below})"
