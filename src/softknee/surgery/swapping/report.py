"""What a swap did: the sites changed and left, the way back, and the file that repeats it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..modules import table_lines
from .operation import Step, Undo, still_there, take_back
from .plan import write


@dataclass(frozen=True)
class Changed:
    """A site that was changed: what it computed, and the module that is there now.

    also: further sites that call the same module, from other lines of its owner.
    """

    path: str
    was: str
    now: str
    kind: str
    also: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Skipped:
    """A site that was left as it is, and why."""

    path: str
    activation: str
    reason: str


@dataclass
class Report:
    """The result of `swap_` and `apply_`; prints as a table.

    changed:       the sites changed, in order of depth.
    skipped:       the sites left, each with its reason; also layers that hide their activation.
    uncalled:      the sites changed that the example never called, empty without one.
    notes:         what to know beyond that.
    output_change: the largest change of any output on the example, None without one.
    relative_change: the same, as a share of the largest output.
    """

    changed: list[Changed]
    skipped: list[Skipped]
    notes: list[str] = field(default_factory=list)
    output_change: float | None = None
    relative_change: float | None = None
    uncalled: list[str] = field(default_factory=list)
    dry_run: bool = False
    plan: dict[str, Any] = field(default_factory=dict, repr=False)
    steps: list[Step] = field(default_factory=list, repr=False)
    _done: list[Undo] = field(default_factory=list, repr=False)
    _undone: bool = field(default=False, repr=False)

    def undo(self) -> None:
        """Put the old activations back exactly as they were; weights trained since then stay."""
        if self.dry_run:
            raise InputError("This report is of a dry run: nothing was changed, so there is nothing to undo.")
        if self._undone:
            raise InputError("This surgery is undone already; its report cannot undo it again.")
        still_there(self.steps)
        take_back(self._done)
        self._undone = True

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the surgery to a file (.json), for `sk.apply_` to repeat it on another model like this one."""
        return write(self.plan, path)

    def __str__(self) -> str:
        rows = [("site", "was", "is now"), *((", ".join([c.path, *c.also]), c.was, c.now) for c in self.changed)]
        idle = f" ({len(self.uncalled)} never called)" if self.uncalled else ""
        title = f"{len(self.changed)} changed{idle}, {len(self.skipped)} left" + " (dry run)" * self.dry_run
        lines = [title, *table_lines(rows)]
        if self.skipped:
            lines += [
                "",
                *table_lines(
                    [("left", "computes", "because"), *((s.path, s.activation, s.reason) for s in self.skipped)]
                ),
            ]
        lines += [f"\n{note}" for note in self.notes]
        if self.output_change is not None:
            lines.append(
                f"\nLargest change of an output on the example: {self.output_change:.3g} "
                f"({self.relative_change or 0.0:.2%} of the largest output)."
            )
        return "\n".join(lines)
