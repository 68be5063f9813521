"""Who looks on while a trial runs: shows progress, keeps its state, and may ask it to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ....errors import SoftkneeError

Save = Callable[[], Mapping[str, bytes]]


class Interrupted(SoftkneeError):
    """A trial was asked to stop; what was saved of it last is where it goes on."""


class Watch(Protocol):
    """What a trial calls while it runs."""

    def step(self) -> None:
        """After every training step. May raise `Interrupted`: the step is done, and no other follows."""
        ...

    def epoch(self, done: int, total: int, save: Save) -> None:
        """After every epoch. `save()` gives the whole state of the trial as named bytes, for `run_trial(saved=...)`."""
        ...


class _Quiet:
    def step(self) -> None: ...

    def epoch(self, done: int, total: int, save: Save) -> None: ...


QUIET: Watch = _Quiet()
