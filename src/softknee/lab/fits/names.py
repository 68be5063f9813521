"""How activations and scores are written in figures: as the papers write them."""

from __future__ import annotations

import re

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
