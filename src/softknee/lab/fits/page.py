"""What all figures of fitted functions share: colours and files."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..chart import Chart, png_of, svg_of

_WRITTEN = (
    *("ReLU", "GELU", "LReLU", "PReLU", "SiLU", "Swish", "CRReLU", "PolyReLU", "PolyNorm", "DiTAC", "KAF"),
    *("SQUAF", "SmeLU", "S-ReLU", "ELU", "Mish", "softplus", "tanh"),
)
_BY_LETTERS = {one.lower().replace("-", ""): one for one in _WRITTEN} | {"leakyrelu": "LReLU"}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def shown(label: str) -> str:
    """A label of a recipe for readers; words that are no known function stay as they are.

    >>> shown("polynorm"), shown("squaf q=0.5"), shown("leaky_relu")
    ('PolyNorm', 'SQUAF q=0.5', 'LReLU')
    """
    first, *rest = re.split(r"(?<=\w)(?=[ (,])", label, maxsplit=1)
    return _BY_LETTERS.get(first.lower().replace("_", "").replace("-", ""), first) + "".join(rest)


def written(measure: str) -> str:
    """The name of a test score.

    >>> written("psnr"), written("accuracy")
    ('PSNR', 'accuracy')
    """
    return measure.upper() if measure in ("psnr", "ssim", "mse", "auc") else measure.replace("_", " ")


def power_of_ten(value: float) -> str:
    """A small number as a product.

    >>> power_of_ten(1.34e-4), power_of_ten(0.0)
    ('1.3×10⁻⁴', '0')
    """
    if value == 0:
        return "0"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}×10{str(int(exponent)).translate(_RAISED)}"


# Told apart by readers who see red and green alike (Okabe and Ito; the purple is darker, and the yellow left out).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0508c", "#56b4e9", "#e69f00", "#5a5a5a")
MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
ERRORS = "magma_r"  # white where nothing is wrong
_LARGEST_SVG = 400_000  # bytes; what is larger is for pixels


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure and what it shows, in a sentence or two."""

    figure: Chart
    caption: str


def png_bytes(figure: Chart) -> bytes:
    """The figure as pixels; the same bytes for the same figure."""
    return png_of(figure)


def svg_bytes(figure: Chart) -> bytes | None:
    """The figure as SVG, where that is small."""
    if any(layer["mark"]["type"] == "image" for layer in figure.get("layer", ())):
        return None  # pixels would be inside all the same
    content = svg_of(figure, label="fitted functions").encode("utf-8")
    return content if len(content) <= _LARGEST_SVG else None
