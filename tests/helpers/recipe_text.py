"""The text of a small recipe, with any part of it changed."""

from __future__ import annotations

USUAL = {"name": "t", "data": "{set: digits}", "activations": "[relu, {name: smelu, beta: [0.5, 1]}]"}


def text(**changes: str) -> str:
    return "\n".join(f"{key}: {value}" for key, value in {**USUAL, **changes}.items()) + "\n"
