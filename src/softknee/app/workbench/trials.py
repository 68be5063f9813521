"""The runs of 'Try it': each in a process of its own, with its events kept for whoever asks, and a way to stop it."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from pathlib import Path
from typing import Any

from ...errors import ParameterError
from .workers import context

MOST_AT_ONCE = 2
MOST_KEPT = 40
_PATIENCE = 8.0  # seconds from the wish to stop until the process is ended
_ID = re.compile(r"[0-9a-f]{12}")


def _train(*arguments: Any) -> None:
    """What the process runs; imported there, because the server itself does without torch and SymPy."""
    from .training import train

    train(*arguments)


class Run:
    """One training: its process, and what it has told so far."""

    def __init__(self, name: str, place: Path, asked: dict[str, Any], threads: int) -> None:
        self.place = place
        self.events: list[dict[str, Any]] = []
        self._wanted_to_stop = False
        started = context()
        self._pipe, theirs = started.Pipe()
        arguments = (theirs, asked, f"workbench-{name}", str(place), threads)
        self._process = started.Process(target=_train, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                self.events.append(self._pipe.recv())
        except (EOFError, OSError):
            pass
        self._process.join(10)
        if self.ended is None:
            kind = "stopped" if self._wanted_to_stop else "failed"
            said = "" if self._wanted_to_stop else "The training ended early, perhaps for want of memory."
            self.events.append({"kind": kind, "text": said, "report": False})

    @property
    def ended(self) -> str | None:
        """How it ended: "finished", "stopped" or "failed"; None while it runs."""
        last = self.events[-1]["kind"] if self.events else None
        return last if last in ("finished", "stopped", "failed") else None

    def stop(self) -> None:
        """Ask it to stop after the current step; end it if it does not."""
        if self.ended is not None or self._wanted_to_stop:
            return
        self._wanted_to_stop = True
        try:
            self._pipe.send("stop")
        except OSError:
            return
        threading.Thread(target=self._insist, daemon=True).start()

    def _insist(self) -> None:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self.ended is None:
            time.sleep(0.1)
        if self.ended is None:
            self._process.kill()

    def kill(self) -> None:
        """End it now."""
        self._wanted_to_stop = True
        self._process.kill()
        self._process.join(5)


class Runs:
    """All runs of this server, by their names; the folders stay when it ends."""

    def __init__(self, folder: Path, *, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self._runs: dict[str, Run] = {}

    def begin(self, asked: dict[str, Any]) -> str:
        """Start a run; its name."""
        if sum(run.ended is None for run in self._runs.values()) >= MOST_AT_ONCE:
            raise ParameterError(
                f"{MOST_AT_ONCE} trainings are running here already; stop one, or wait until one has ended."
            )
        self._check_folder()
        name = secrets.token_hex(6)
        for old in [one for one, run in self._runs.items() if run.ended is not None][: -MOST_KEPT or None]:
            del self._runs[old]
        self._runs[name] = Run(name, self.place(name), asked, self._threads)
        return name

    def _check_folder(self) -> None:
        """Raise where no training could be kept; it would train first and fail afterwards."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            reason = "" if os.access(self._folder, os.W_OK) else "it may not be written to"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            raise ParameterError(
                f"Trainings are kept in {str(self._folder)!r}, which cannot be used: {reason}. Start the workbench "
                "with another folder: softknee workbench --out FOLDER"
            )

    def place(self, name: str) -> Path:
        """The folder of a run, whether it is there or not; a name that is none is refused."""
        if not _ID.fullmatch(name):
            raise ParameterError("There is no such training.")
        return self._folder / f"workbench-{name}"

    def state(self, name: str, *, after: int) -> dict[str, Any]:
        """What has been told since the event of that number; of a run of an earlier server only how it ended."""
        run, place = self._runs.get(name), self.place(name)
        if run is not None:
            events = run.events[max(after, 0) :]
            return {"events": events, "next": max(after, 0) + len(events), "ended": run.ended}
        if (place / "report" / "index.html").is_file():
            events = [{"kind": "finished", "text": "", "report": True}] if after < 1 else []
            return {"events": events, "next": 1, "ended": "finished"}
        raise ParameterError("There is no such training here; it may have been on another machine.")

    def stop(self, name: str) -> None:
        run = self._runs.get(name)
        if run is None:
            raise ParameterError("There is no such training here; it may have been on another machine.")
        run.stop()

    def close(self) -> None:
        """End every run; what was finished is in its folder."""
        for run in self._runs.values():
            if run.ended is None:
                run.kill()
