"""The activations of the papers' language experiments, and how one is put into a model."""

from __future__ import annotations

from typing import Any

from ...surgery import relu_ize_, swap_
from ...surgery.activation_text import read_name

AS_LOADED = "as loaded"
# A bare name means the function as its paper has it in a language model; a text in parentheses is taken as it is.
PAPERS = {
    "crrelu": "crrelu(eps=0.01, learn=all)",  # EAFO paper: one learned eps for each layer, from 0.01
    "srelu": "srelu(delta=0.001)",  # mollification paper, appendix H: in all its experiments
    "squaf": "squaf(k=16, q=1, z=gelu, learn=all)",  # SQUAF paper, A.3.2: fitted to GELU, everything is learned
    "lambda_gelu": "lambda_gelu(learn=all)",
}


def full_text(activation: str) -> str:
    """What a bare name stands for.

    >>> full_text("squaf"), full_text("srelu(delta=0.5)")
    ('squaf(k=16, q=1, z=gelu, learn=all)', 'srelu(delta=0.5)')
    """
    return PAPERS.get(activation.strip(), activation.strip())


def put_in_(model: Any, activation: str) -> list[str]:
    """Put an activation into every feed-forward part of a model; returns the paths of the sites.

    "as loaded" changes nothing, and "relu" ends as torch's own ReLU, so that its path is the plain one.
    """
    if activation == AS_LOADED:
        return []
    named = read_name(full_text(activation))
    report = swap_(model, named.name, learn=named.learn, **named.values)
    if named.name == "relu":
        relu_ize_(model)
    return [one.path for one in report.changed]
