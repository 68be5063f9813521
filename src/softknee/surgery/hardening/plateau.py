"""When a validation metric has flattened."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ...errors import ParameterError

BETTER = ("lower", "higher")


@dataclass
class Plateau:
    """Flat after `patience` metrics in a row none of which beat the best by a share of at least `min_delta`.

    A metric that is not a number counts as no improvement.
    """

    better: str | None
    patience: int = 3
    min_delta: float = 1e-3
    best: float | None = field(default=None)
    waited: int = field(default=0)

    def __post_init__(self) -> None:
        if self.better not in BETTER:
            raise ParameterError(
                f"Hardener: start='plateau' needs better='lower' (a loss) or better='higher' (an accuracy), and "
                f"{self.better!r} was given."
            )
        if isinstance(self.patience, bool) or not isinstance(self.patience, int) or self.patience < 1:
            raise ParameterError(
                f"Hardener: patience must be a whole number of at least 1, and {self.patience!r} was given."
            )
        if not isinstance(self.min_delta, int | float) or not 0 <= self.min_delta < math.inf:
            raise ParameterError(
                f"Hardener: min_delta must be a finite number of at least 0, and {self.min_delta!r} was given."
            )

    @property
    def flat(self) -> bool:
        return self.waited >= self.patience

    def seen(self, metric: float) -> Plateau:
        """What is known after one more metric."""
        gain = math.inf if self.best is None else (metric - self.best) * (1 if self.better == "higher" else -1)
        enough = 0.0 if self.best is None else self.min_delta * abs(self.best)
        if math.isfinite(metric) and gain > enough:
            return Plateau(self.better, self.patience, self.min_delta, best=metric)
        return Plateau(self.better, self.patience, self.min_delta, self.best, self.waited + 1)

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}
