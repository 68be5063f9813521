"""How far numbers spread from 0, counted as they stream by: every one counts, and nothing is drawn at random.

The magnitudes are counted in bins of a sixteenth of an octave, from 2^-32 to 2^32, for each group (a layer, or each
channel or neuron) apart: 8 KiB for a group. Counts of two streams add up to those of both, in any order and on any
device. A quantile read from them is right to 4.4%, the width of a bin, and to a fraction of a percent where the bin is
well filled.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BINS_PER_OCTAVE = 16
_LOWEST, _HIGHEST = -32, 32
_BINS = _BINS_PER_OCTAVE * (_HIGHEST - _LOWEST)
# The median of |x| for a normal x of standard deviation 1.
_NORMAL_MEDIAN = 0.6744897501960817


class Spread:
    """Counts of magnitudes in groups; bin 0 holds what is 0 or below 2^-32.

    >>> import torch
    >>> from softknee.surgery.calibration.spread import Spread
    >>> seen = Spread(1)
    >>> for part in torch.linspace(-3, 3, 60001).split(1000):
    ...     seen.add(part[None])
    >>> f"{seen.quantile(0.5).item():.2f}, {seen.share_below(1.0):.3f}"
    '1.50, 0.333'
    """

    def __init__(self, groups: int, counts: Tensor | None = None) -> None:
        self.counts = torch.zeros(groups, _BINS + 1, dtype=torch.int64) if counts is None else counts

    def add(self, x: Tensor) -> None:
        """Count finite numbers, laid out as (groups, any number)."""
        groups = len(self.counts)
        work = x.detach().to(torch.promote_types(x.dtype, torch.float32)).abs()
        # log2(0) is -inf, and becomes bin 0.
        place = ((work.log2() - _LOWEST) * _BINS_PER_OCTAVE).floor().clamp(-1, _BINS - 1).to(torch.int64) + 1
        offset = torch.arange(groups, device=x.device)[:, None] * (_BINS + 1)
        found = torch.bincount((place + offset).reshape(-1), minlength=groups * (_BINS + 1))
        self.counts += found.cpu().reshape(groups, -1)

    @property
    def pooled(self) -> Spread:
        """All groups as one."""
        return Spread(1, self.counts.sum(0, keepdim=True))

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def quantile(self, level: float) -> Tensor:
        """The magnitude that this share of the numbers does not exceed, for each group; 0 where they are 0."""
        total = self.counts.cumsum(1).double()
        wanted = level * total[:, -1:]
        place = (total < wanted).sum(1, keepdim=True).clamp(max=_BINS)
        inside = self.counts.gather(1, place).clamp(min=1).double()
        share = ((wanted - (total.gather(1, place) - inside)) / inside).clamp(0, 1)
        exponent = (place - 1 + share) / _BINS_PER_OCTAVE + _LOWEST
        return torch.where(place == 0, torch.zeros_like(exponent), exponent.exp2())[:, 0]

    @property
    def scale(self) -> Tensor:
        """A standard deviation about 0 that a few huge numbers do not move: the median of |x|, over a normal one's."""
        return self.quantile(0.5) / _NORMAL_MEDIAN

    def share_below(self, magnitude: float | Tensor) -> float:
        """The share of the numbers whose magnitude is at most this, given once or for each group."""
        limit = torch.as_tensor(magnitude, dtype=torch.float64).reshape(-1, 1).expand(len(self.counts), 1)
        place = ((limit.log2() - _LOWEST) * _BINS_PER_OCTAVE + 1).clamp(0, _BINS + 1)
        whole = place.floor().to(torch.int64)
        total = torch.nn.functional.pad(self.counts.cumsum(1).double(), (1, 0))
        ends = torch.nn.functional.pad(total, (0, 1), mode="replicate")
        below = ends.gather(1, whole) + (place - whole) * (ends.gather(1, whole + 1) - ends.gather(1, whole))
        return float(below.sum()) / max(self.count, 1)
