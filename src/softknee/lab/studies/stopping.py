"""Signals that end a study: the first asks it to stop after the current step, a second Ctrl-C stops it at once.

SIGINT    Ctrl-C in the terminal
SIGTERM   `kill`, a cluster's queue, a container that is shut down
SIGHUP    the terminal was closed, or the connection to it (not on Windows)
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StudyStopped(KeyboardInterrupt):
    """A study was stopped by a signal; what it had finished is kept, and the message says how to go on.

    number: of the signal.
    """

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number


class Stopping:
    """While it is entered, Ctrl-C, SIGTERM and SIGHUP set `asked`, and `number` says which of them it was.

    In a thread other than the main one a signal stays as it is, and so does one that is ignored: SIGINT of a job in the
    background, SIGHUP under nohup.

    >>> import signal
    >>> with Stopping() as stopping:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stopping.asked, stopping.number == signal.SIGTERM
    (True, True)
    """

    def __init__(self) -> None:
        self.asked = False
        self.number: int = signal.SIGINT
        self._process = os.getpid()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # None: a handler of another language, which could not be put back.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.asked and self.number != signal.SIGINT:
            _leave_closed_outputs()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child of a fork, which SIGTERM should end
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
            return
        if self.asked:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # a terminal that closes may send SIGHUP twice, and a queue SIGTERM as often as it likes
        self.asked, self.number = True, number
        how = "; press Ctrl-C once more to stop at once" if number == signal.SIGINT else ""
        # Not through Python's streams: the signal may have come in the middle of a write to one of them.
        with suppress(OSError):
            os.write(2, f"\nStopping after this step{how}.\n".encode())
        _leave_closed_outputs()


def _leave_closed_outputs() -> None:
    """Where the terminal is gone, writing to it is an error, which would end the study before its state is kept."""
    if not hasattr(select, "poll"):
        return
    for output in (1, 2):
        poll = select.poll()
        poll.register(output, select.POLLOUT)
        gone = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
        if gone:
            with suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), output)
