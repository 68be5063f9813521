"""Ctrl-C: the first asks a study to stop after the current step, the second stops it at once."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any


class StudyStopped(KeyboardInterrupt):
    """A study was stopped by Ctrl-C; what it had finished is kept, and the message says how to go on."""


class Stopping:
    """While it is entered, Ctrl-C sets `asked`.

    In a thread other than the main one, and where Ctrl-C is ignored (a job in the background), it stays as it is.

    >>> import signal
    >>> with Stopping() as stopping:
    ...     signal.raise_signal(signal.SIGINT)
    ...     stopping.asked
    True
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Stopping:
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if threading.current_thread() is threading.main_thread() and not ignored:
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # Not through Python's streams: the signal may have come in the middle of a write to one of them.
        with suppress(OSError):
            os.write(2, b"\nStopping after this step; press Ctrl-C once more to stop at once.\n")
