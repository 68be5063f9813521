"""Small networks of the hardening study for the digits, and the recipe that they are trained by in tests."""

from torch import nn

from softknee.lab.hardening import ENTRIES, Recipe
from softknee.lab.networks import build

RECIPE = Recipe(epochs=2, batch=64, learning_rate=0.01, weight_decay=0.01, start=0.5)
KNOBS = {entry.name: dict(entry.knobs) for entry in ENTRIES}


def network(name: str, *, seed: int = 0) -> nn.Sequential:
    return build("mlp", widths=[64, 12, 8, 10], activation=name, seed=seed, **KNOBS[name])
