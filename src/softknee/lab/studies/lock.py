"""One process at a time on one study.

On a disk: `flock` on the file `.lock`, which the kernel gives back when the process ends in any way, also by SIGKILL.
It holds among all processes of a machine, and on network disks that pass locks on (NFS 4, most cluster file systems).

In any other store: the object `.lease` with its owner and the time of its last sign of life, renewed every 30
seconds. A lease without a sign of life for 5 minutes counts as left behind and is taken over. So a killed study can go
on there after 5 minutes, and the clocks of the machines must agree to a minute or so. Whoever finds that the lease is
no longer theirs stops writing. Making the lease is exclusive where the store can do that (s3, memory); elsewhere two
processes that start in the same second may both believe to hold it until the first renewal.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from ...errors import SoftkneeError
from ...files import WriteError
from .files_anywhere import Folder

LOCK, LEASE = ".lock", ".lease"
RENEW_AFTER, STALE_AFTER = 30.0, 300.0  # seconds


class StudyBusyError(SoftkneeError, RuntimeError):
    """Another process works on this study."""


class StudyLock:
    """Held from its making until `close`; use it with `with`.

    >>> from softknee.lab.studies.files_anywhere import Folder
    >>> with StudyLock(Folder("memory://doctest/locked")):
    ...     StudyLock(Folder("memory://doctest/locked"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    softknee.lab.studies.lock.StudyBusyError: ...
    """

    def __init__(self, folder: Folder, *, renew_after: float = RENEW_AFTER, stale_after: float = STALE_AFTER) -> None:
        self._folder = folder
        self._me = {
            "owner": secrets.token_hex(8),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        }
        self._descriptor: int | None = None
        self._over = threading.Event()
        self.lost = False
        self._renewal: threading.Thread | None = None
        if folder.local is not None and _fcntl() is not None:
            self._lock_file()
        else:
            self._take_lease(stale_after)
            self._renewal = threading.Thread(target=self._renew, args=(renew_after,), daemon=True)
            self._renewal.start()

    def check(self) -> None:
        """Raise if the study was taken over by another process, as may happen to a lease after a long sleep."""
        if self.lost:
            raise StudyBusyError(
                f"Another process has taken over the study in '{self._folder.url}', because this one gave no sign of "
                "life for too long. This one stops; what it had finished is kept."
            )

    def close(self) -> None:
        """Give the study free."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(
                    self._descriptor, 0
                )  # the file itself stays: to remove it would free it under a second taker
            os.close(self._descriptor)
            self._descriptor = None
        if self._renewal is not None:
            self._over.set()
            self._renewal.join()
            self._renewal = None
            if not self.lost and _owner(self._folder.read(LEASE)).get("owner") == self._me["owner"]:
                self._folder.remove(LEASE)

    def __enter__(self) -> StudyLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock_file(self) -> None:
        fcntl, folder = _fcntl(), self._folder.local
        assert folder is not None
        assert fcntl is not None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise WriteError(
                f"No study can be kept in '{self._folder.url}' ({error.strerror}). "
                "Choose a folder that can be written to."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _owner(os.pread(descriptor, 10_000, 0))
            os.close(descriptor)
            raise StudyBusyError(_busy(self._folder, holder)) from None
        except OSError as error:  # a file system without locks
            os.close(descriptor)
            raise WriteError(
                f"The study in '{self._folder.url}' cannot be kept to one process ({error.strerror}): its file "
                "system has no locks. Choose a folder on another disk."
            ) from error
        with suppress(OSError):  # on a full disk the lock holds all the same, and says less
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(self._me).encode(), 0)
        self._descriptor = descriptor

    def _take_lease(self, stale_after: float) -> None:
        if self._folder.create(LEASE, self._lease()):
            return
        holder = _owner(self._folder.read(LEASE))
        silent = time.time() - float(holder.get("sign_of_life", 0.0))
        if silent < stale_after:
            raise StudyBusyError(_busy(self._folder, holder, free_in=stale_after - silent))
        self._folder.remove(LEASE)
        if not self._folder.create(LEASE, self._lease()):
            raise StudyBusyError(_busy(self._folder, _owner(self._folder.read(LEASE)), free_in=stale_after))

    def _renew(self, after: float) -> None:
        while not self._over.wait(after):
            # A store that does not answer for a moment is asked again at the next turn.
            with suppress(SoftkneeError):
                if _owner(self._folder.read(LEASE)).get("owner") != self._me["owner"]:
                    self.lost = True
                    return
                self._folder.write(LEASE, self._lease(), what="lease")

    def _lease(self) -> bytes:
        return json.dumps(self._me | {"sign_of_life": time.time()}).encode()


def _owner(content: bytes | None) -> Mapping[str, Any]:
    """Who wrote a lock or lease; an empty mapping where it does not say."""
    with suppress(ValueError):
        found = json.loads(content or b"")
        if isinstance(found, dict) and isinstance(found.get("sign_of_life", 0.0), float | int):
            return found
    return {}


def _busy(folder: Folder, holder: Mapping[str, Any], *, free_in: float | None = None) -> str:
    who = "Another process"
    if {"pid", "host", "since"} <= set(holder):
        who = f"Process {holder['pid']} on {holder['host']} (since {holder['since']})"
    freed = (
        "" if free_in is None else f" If it was killed, the study is free again in {max(1, round(free_in / 60))} min."
    )
    return (
        f"{who} works on the study in '{folder.url}'; nothing was changed. Wait until it is done, stop it, or choose "
        f"another place with --out.{freed}"
    )


def _fcntl() -> Any:
    """The module of the system's file locks; None on Windows, where a lease does instead."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return None
    return fcntl
