"""The run store: one folder for a study, one record for each finished trial. What is in it once is never lost.

    study.json              the recipe, the version of softknee, the examples' fingerprint, the threads
    trials/KEY.json         the record of a finished trial; KEY is the hash of its resolved recipe
    files/KEY.NAME          what goes with it: predictions, and models where they are kept
    state/KEY               where an interrupted trial goes on
    report/                 the report

Every file is written whole (`files_anywhere.py`). A record is written after its files and names their sizes and
checksums, so that a record which is there is complete. A record that is damaged or belongs to another study is never
removed or overwritten: it is refused, or, when the study is resumed, set aside as KEY.json.damaged.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...errors import ParameterError, SoftkneeError
from ...files import ReadError, WriteError, make_parents, sync_folder, write_whole
from ...measure.record import Record, RecordError
from ...version import VERSION
from .trials import Outcome

# Stores in which putting an object is one step: it is there as a whole, or what was there before still is.
_PUTS_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "ocilake", "oss", "memory"})
_TEMPORARY = ".tmp"


class Folder:
    """The folder at a path or URL; names inside are relative, with '/' between. Nothing is made before it is written.

    local: its path where it is on a disk, else None.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        import fsspec  # torch depends on it

        self.url = os.fspath(url)
        try:
            self._fs, root = fsspec.url_to_fs(self.url)
        except (ValueError, ImportError) as error:  # an unknown protocol, or one whose package is not installed
            raise ParameterError(f"The place '{self.url}' cannot be used: {error}.") from error
        protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        self.local = Path(root) if "file" in protocols else None
        self._puts_whole = bool(protocols & _PUTS_WHOLE)
        self._root = root.rstrip("/")

    def place(self, name: str) -> str:
        """The file as a person finds it, for messages."""
        return f"{self.url.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes | None:
        """What a file holds; None where there is none."""
        with _errors_as(ReadError, f"'{self.place(name)}' could not be read", but=FileNotFoundError):
            return self._fs.cat_file(self._path(name))
        return None

    def size(self, name: str) -> int | None:
        """The length of a file in bytes; None where there is none."""
        with _errors_as(ReadError, f"'{self.place(name)}' could not be looked at", but=FileNotFoundError):
            entry = self._fs.info(self._path(name))
            return entry["size"] if entry["type"] == "file" else None
        return None

    def names(self, inside: str = "") -> list[str]:
        """The files of a folder inside this one, or of itself, in order; temporaries are not among them."""
        return [name for name in self._listed(inside) if not _is_temporary(name)]

    def entries(self) -> list[str]:
        """The names of all files and folders right here, temporaries left out."""
        if self.local is not None and self.local.exists() and not self.local.is_dir():
            raise WriteError(f"'{self.url}' is a file, and a folder is needed. Choose another place.")
        return [name for name in self._listed("", files_only=False) if not _is_temporary(name)]

    def write(self, name: str, content: bytes, *, what: str) -> None:
        """Put a file there as a whole; if that fails, what stood there before is unchanged."""
        with _errors_as(WriteError, f"The {what} could not be written to '{self.place(name)}'"):
            if self.local is not None:
                make_parents((self.local / name).parent)
                write_whole(self.local / name, content, what=what)
            elif self._puts_whole:
                self._fs.pipe_file(self._path(name), content)
            else:
                self._write_and_move(name, content)

    def create(self, name: str, content: bytes) -> bool:
        """Put a small file there if there is none of that name; False where there is one."""
        with _errors_as(WriteError, f"'{self.place(name)}' could not be written", but=FileExistsError):
            if self.local is not None:
                self.local.mkdir(parents=True, exist_ok=True)
                with (self.local / name).open("xb") as file:
                    file.write(content)
            else:
                self._fs.pipe_file(self._path(name), content, mode="create")
            return True
        return False

    def move(self, name: str, to: str) -> None:
        """Give a file another name, which must be free."""
        with _errors_as(WriteError, f"'{self.place(name)}' could not be moved to '{to}'"):
            if self.local is not None:
                os.rename(self.local / name, self.local / to)
                sync_folder((self.local / to).parent)
            else:
                self._fs.mv(self._path(name), self._path(to))

    def remove(self, name: str) -> None:
        """Take a file away, if it is there."""
        with _errors_as(WriteError, f"'{self.place(name)}' could not be removed", but=FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def clean(self, inside: str = "") -> None:
        """Take away the temporaries that a process which was stopped has left there."""
        for name in self._listed(inside):
            if _is_temporary(name):
                self.remove(f"{inside}/{name}" if inside else name)

    def _listed(self, inside: str, *, files_only: bool = True) -> list[str]:
        path = self._path(inside) if inside else self._root
        nothing = FileNotFoundError, NotADirectoryError
        with _errors_as(ReadError, f"'{self.place(inside)}' could not be looked into", but=nothing):
            self._fs.invalidate_cache()  # a store may remember an earlier answer
            entries: list[dict[str, Any]] = self._fs.ls(path, detail=True)
            wanted = [entry["name"].rstrip("/") for entry in entries if entry["type"] == "file" or not files_only]
            return sorted(entry.rpartition("/")[2] for entry in wanted)
        return []

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _write_and_move(self, name: str, content: bytes) -> None:
        path = self._path(name)
        folder, _, last = path.rpartition("/")
        temporary = f"{folder}/.{last}.{secrets.token_hex(4)}{_TEMPORARY}"
        self._fs.makedirs(folder, exist_ok=True)
        try:
            self._fs.pipe_file(temporary, content)
            try:
                self._fs.mv(temporary, path)
            except FileExistsError:  # not every store moves onto a file that is there
                self._fs.rm_file(path)
                self._fs.mv(temporary, path)
        finally:
            with suppress(Exception):
                self._fs.rm_file(temporary)


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(_TEMPORARY)


_CURES = {
    ReadError: ". Check permissions.",
    WriteError: "; what stood there before, if anything, is unchanged. Choose a place that can be written to, or make "
    "space there.",
}


@contextmanager
def _errors_as(
    kind: type[ReadError | WriteError], words: str, *, but: type[Exception] | tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Whatever a store raises, as each has errors of its own, becomes one of ours; `but` ends what is done in peace."""
    try:
        yield
    except WriteError:
        raise
    except but:
        pass
    except Exception as error:
        reason = str(error) if isinstance(error, SoftkneeError) else getattr(error, "strerror", None) or str(error)
        raise kind(f"{words} ({reason or type(error).__name__}){_CURES[kind]}") from error


LOCK, LEASE = ".lock", ".lease"
RENEW_AFTER, STALE_AFTER = 30.0, 300.0  # seconds


class StudyBusyError(SoftkneeError, RuntimeError):
    """Another process works on this study."""


class StudyLock:
    """Held from its making until `close`; use it with `with`.

    >>> from softknee.lab.studies.store import Folder
    >>> with StudyLock(Folder("memory://doctest/locked")):
    ...     StudyLock(Folder("memory://doctest/locked"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    softknee.lab.studies.store.StudyBusyError: ...
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
        owner = json.loads(content or b"")
        if isinstance(owner, dict) and isinstance(owner.get("sign_of_life", 0.0), float | int):
            return owner
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


_SECONDS = 5.0


def git_state(folder: str | os.PathLike[str] = ".") -> dict[str, Any] | None:
    """The commit, and whether tracked files differ from it; None outside of a git checkout or without git.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     git_state(folder) is None
    True
    """
    commit = _git(folder, "rev-parse", "HEAD")
    # Files that git was never told of (the study's own folder among them) do not count.
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if not commit or changed is None:
        return None
    return {"commit": commit, "dirty": bool(changed)}


def _git(folder: str | os.PathLike[str], *arguments: str) -> str | None:
    command = ["git", "-C", os.fspath(folder), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()


FORMAT, SCHEMA = "softknee study", 1
_SHOWN = 6  # fields named in an error; the rest are counted
_MOST_SHOWN = 60  # characters of a value


class StoreError(SoftkneeError, ValueError):
    """A run store does not fit the study, or something in it is damaged."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """The study of a store.

    recipe:      every field of it, as JSON's own types.
    fingerprint: of the examples.
    threads:     of torch on a CPU. The last bit of a sum can depend on it, so a study keeps to those it began with.

    >>> one = Description(recipe={"name": "mine", "seeds": {"count": 3}}, fingerprint="12ab", threads=1)
    >>> Description.from_json(one.to_json(), source="here") == one
    True
    >>> other = Description(recipe={"name": "mine", "seeds": {"count": 9}}, fingerprint="12ab", threads=1)
    >>> one.refuse_other(other, "here")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    softknee.lab.studies.store.StoreError: 'here' holds a study with another recipe: seeds.count is 3 there...
    """

    recipe: Mapping[str, Any]
    fingerprint: str
    threads: int
    softknee: str = VERSION

    def to_json(self) -> bytes:
        content = {"format": FORMAT, "schema": SCHEMA} | vars(self)
        return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes, *, source: str) -> Description:
        """What `to_json` wrote; anything else is refused, naming `source`."""
        try:
            described = json.loads(content.decode())
            if not isinstance(described, dict) or described.get("format") != FORMAT:
                raise ValueError("it describes no study")
            if described.get("schema") != SCHEMA:
                raise ValueError(f"it has schema {described.get('schema')!r}, and this softknee reads {SCHEMA}")
            kinds = {"recipe": dict, "fingerprint": str, "threads": int, "softknee": str}
            wrong = [name for name, kind in kinds.items() if not isinstance(described.get(name), kind)]
            if wrong or described["threads"] < 1:
                raise ValueError(f"it has no valid {(*wrong, 'threads')[0]!r}")
        except (ValueError, RecursionError) as error:  # what is not UTF-8 or not JSON is a ValueError as well
            raise StoreError(
                f"'{source}' cannot be used ({error}). Take it from a copy; or remove it and run the study again with "
                "--resume: every record says itself which trial it is of."
            ) from error
        return cls(**{name: described[name] for name in kinds})

    def refuse_other(self, wanted: Description, place: str) -> None:
        """Raise where another recipe or other examples are wanted than the store's own."""
        what, cure = self.other_than(wanted)
        if what:
            raise StoreError(f"'{place}' holds a study {what}. {cure}")

    def other_than(self, wanted: Description) -> tuple[str, str]:
        """In which way this is the description of another study, and what to do about it; two empty texts if it is not.

        "there" is this one, "here" the one that is wanted.
        """
        theirs, ours = _flat(_trained_by(self.recipe)), _flat(_trained_by(wanted.recipe))
        differing = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        if differing:
            several = [f"{name} is {_short(theirs, name)} there and {_short(ours, name)} here" for name in differing]
            more = f"; and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
            return (
                f"with another recipe: {'; '.join(several[:_SHOWN])}{more}",
                "Choose another place with --out, or take the recipe as it is there.",
            )
        if wanted.fingerprint != self.fingerprint:
            return (
                "of other examples: the recipe is the same, but the data have changed since it began",
                "Bring the old data back, or choose another place with --out.",
            )
        if wanted.softknee != self.softknee:
            return (
                f"that was begun with softknee {self.softknee}, and this is {wanted.softknee}; results of two versions "
                "are not mixed",
                "Use that version, or choose another place with --out.",
            )
        return "", ""


def _trained_by(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe without the numbers of a paper, on which no trial depends."""
    return {key: part for key, part in recipe.items() if key != "paper"}


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every value by its dotted path, as it would be in a file; lists of mappings by the number of the place."""
    value = list(value) if isinstance(value, tuple) else value
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        value = dict(enumerate(value, start=1))
    if isinstance(value, Mapping) and value:
        parts = (_flat(item, f"{path}.{name}" if path else str(name)) for name, item in value.items())
        return {name: item for part in parts for name, item in part.items()}
    return {path: json.loads(json.dumps(value))}


def _short(values: Mapping[str, Any], name: str) -> str:
    text = json.dumps(values[name], ensure_ascii=False) if name in values else "not given"
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


STUDY, TRIALS, FILES, STATE, REPORT = "study.json", "trials", "files", "state", "report"
KEPT = "store"  # the entry of a record's settings that is the store's own
_FILE = {"bytes", "sha256"}  # what is known of each file of a record
_KEY = re.compile(r"[0-9a-f]{16}\.json")
_FILE_NAME = re.compile(r"\w[\w.-]*")  # no way out of the folder: a record may come from elsewhere


class DamagedError(StoreError):
    """A record, or a file of one, is damaged or belongs to something else."""


class RunStore:
    """The store at a path, or at any URL that fsspec knows ("s3://bucket/studies/mine", "memory://mine").

    >>> store = RunStore("memory://doctest/store")
    >>> store.describe(Description(recipe={"name": "mine"}, fingerprint="12ab", threads=1))
    >>> store.description().recipe, store.finished()
    ({'name': 'mine'}, [])
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.folder = Folder(url)
        self.url = self.folder.url

    # -- the study --------------------------------------------------------------------------------------

    def description(self) -> Description | None:
        """What the store is of; None where it is new."""
        content = self.folder.read(STUDY)
        return None if content is None else Description.from_json(content, source=self.folder.place(STUDY))

    def describe(self, description: Description) -> None:
        """Make this the store of a study."""
        self.folder.write(STUDY, description.to_json(), what="description of the study")

    def refuse_foreign_folder(self) -> None:
        """Raise where the folder holds something, and no study."""
        ours = {STUDY, TRIALS, FILES, STATE, REPORT, ".lock", ".lease"}
        others = [name for name in self.folder.entries() if name not in ours]
        if others and self.folder.read(STUDY) is None:
            raise StoreError(
                f"'{self.url}' is not empty and holds no study: {others[0]!r} is there. Give the study a folder of its "
                "own with --out."
            )

    # -- finished trials --------------------------------------------------------------------------------

    def finished(self) -> list[str]:
        """The keys of all finished trials."""
        return [name.removesuffix(".json") for name in self.folder.names(TRIALS) if _KEY.fullmatch(name)]

    def add(self, key: str, record: Record, files: Mapping[str, bytes] | None = None, *, position: int = 0) -> None:
        """Keep a finished trial: its files, then its record, and then its state goes.

        position: the place of the trial in its study, which `outcomes` is ordered by.
        """
        record = _without_the_stores(record)
        kept: dict[str, Any] = {"position": position, "sha256": _checksum(record), "files": {}}
        for given, content in (files or {}).items():
            name = given.removeprefix(f"{key}.")
            self.folder.write(f"{FILES}/{key}.{name}", content, what=f"file {name} of a trial")
            kept["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        record = replace(record, settings={**record.settings, KEPT: kept})
        self.folder.write(f"{TRIALS}/{key}.json", record.to_json().encode(), what="record of a trial")
        self.drop_state(key)

    def read(self, key: str) -> Record:
        """The record of a finished trial as its file has it; `record` also sees that nothing was changed or lost."""
        name = f"{TRIALS}/{key}.json"
        content = self.folder.read(name)
        if content is None:
            raise StoreError(f"'{self.url}' has no finished trial {key!r}.")
        source = f"'{self.folder.place(name)}'"
        try:
            return Record.from_json(content.decode(), source=source)
        except UnicodeDecodeError as error:
            raise DamagedError(f"{source} is no record: it is not text in UTF-8. {_CURE}") from error
        except RecordError as error:
            raise DamagedError(f"{error} {_CURE}") from error

    def record(self, key: str, *, with_files: bool = True) -> Record:
        """The record of a finished trial; DamagedError where it is not whole, or of another trial.

        with_files: its files belong to it, and must be there.
        """
        record, source = self.read(key), f"'{self.folder.place(f'{TRIALS}/{key}.json')}'"
        try:
            key_of_record = Outcome.read(record).trial.key
        except (SoftkneeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(f"{source} is not the record of a trial: {error} {_CURE}") from error
        if key_of_record != key:
            raise DamagedError(f"{source} is of another trial, {key_of_record!r}: it was renamed or edited. {_CURE}")
        if self._kept(record).get("sha256") != _checksum(record):
            raise DamagedError(f"{source} is not what was written there: its checksum differs. {_CURE}")
        for file, expected in self._files(record, source).items() if with_files else ():
            size, part = self.folder.size(f"{FILES}/{key}.{file}"), self.folder.place(f"{FILES}/{key}.{file}")
            if size != expected["bytes"]:
                has = "is missing" if size is None else f"has {size:,} bytes where {expected['bytes']:,} were written"
                raise DamagedError(f"'{part}', a part of {source}, {has}. {_CURE}")
        return record

    def take(self, other: RunStore, key: str) -> None:
        """Keep a finished trial of another store of the same study, with its files; every checksum is compared."""
        record = other.record(key)
        files = {name: other.file(key, name) for name in self._files(record, key)}
        self.add(key, record, files, position=self._kept(record).get("position", 0))

    def outcome(self, key: str) -> Outcome:
        """The outcome of a finished trial."""
        return Outcome.read(self.record(key))

    def records(self, *, with_files: bool = True) -> list[Record]:
        """Every record in the order of the study."""
        records = [self.record(key, with_files=with_files) for key in self.finished()]
        return sorted(records, key=lambda record: self._kept(record).get("position", 0))

    def outcomes(self, *, with_files: bool = True) -> list[Outcome]:
        """Every outcome in the order of the study."""
        return [Outcome.read(record) for record in self.records(with_files=with_files)]

    def file(self, key: str, name: str) -> bytes:
        """A file of a finished trial, its checksum compared."""
        files = self._files(self.record(key), key)
        if name not in files:
            raise StoreError(f"The trial {key!r} has no file {name!r}; it has {', '.join(files) or 'none'}.")
        return self._content(key, name, files[name]["sha256"])

    def check_files(self, key: str) -> None:
        """Raise where a file of a finished trial is not what was written; they are read for it from end to end."""
        for name, expected in self._files(self.record(key), key).items():
            self._content(key, name, expected["sha256"])

    def _content(self, key: str, name: str, sha256: str) -> bytes:
        content = self.folder.read(f"{FILES}/{key}.{name}") or b""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise DamagedError(f"'{self.folder.place(f'{FILES}/{key}.{name}')}' is not what was written there. {_CURE}")
        return content

    def set_aside(self, key: str, *, suffix: str = "damaged") -> str:
        """Give a record that cannot be used, and its files, other names under which they are kept."""
        record = f"{TRIALS}/{key}.json"
        count, ending = 1, f".{suffix}"
        while self.folder.size(record + ending) is not None:
            count += 1
            ending = f".{suffix}-{count}"
        files = [name for name in self.folder.names(FILES) if name.startswith(f"{key}.")]
        for name in files:
            if ".damaged" not in name and ".foreign" not in name:
                self.folder.move(f"{FILES}/{name}", f"{FILES}/{name}{ending}")
        # Last: whoever is stopped before finds a record that lacks its files, and sets it aside again.
        self.folder.move(record, record + ending)
        return record + ending

    # -- interrupted trials -----------------------------------------------------------------------------

    def save_state(self, key: str, state: bytes) -> None:
        """Keep where an unfinished trial stands, in the place of what was kept before."""
        self.folder.write(f"{STATE}/{key}", state, what="state of a trial")

    def state(self, key: str) -> bytes | None:
        """Where an unfinished trial goes on; None where nothing is kept."""
        return self.folder.read(f"{STATE}/{key}")

    def drop_state(self, key: str) -> None:
        self.folder.remove(f"{STATE}/{key}")

    def tidy(self) -> None:
        """Take away what stopped processes have left: temporaries, and states of trials that are finished."""
        for inside in ("", TRIALS, FILES, STATE, REPORT, f"{REPORT}/figures"):
            self.folder.clean(inside)
        finished = set(self.finished())
        for name in self.folder.names(STATE):
            if name in finished:
                self.drop_state(name)

    @staticmethod
    def _kept(record: Record) -> Mapping[str, Any]:
        kept = record.settings.get(KEPT)
        return kept if isinstance(kept, Mapping) else {}

    @classmethod
    def _files(cls, record: Record, source: str) -> Mapping[str, Any]:
        kept = cls._kept(record)
        files = kept.get("files")
        if not isinstance(kept.get("position", 0), int):
            raise DamagedError(f"{source} does not say which place it has in its study. {_CURE}")
        if isinstance(files, Mapping) and all(
            _FILE_NAME.fullmatch(name) and isinstance(about, Mapping) and set(about) >= _FILE
            for name, about in files.items()
        ):
            return files
        raise DamagedError(f"{source} does not say which files belong to it. {_CURE}")


_CURE = (
    "Nothing was changed. Take it from a copy; or use --resume, which sets the record aside as .damaged and runs the "
    "trial again."
)


def _checksum(record: Record) -> str:
    """Of all that a record says, but for what the store has added."""
    return hashlib.sha256(_without_the_stores(record).to_json().encode()).hexdigest()


def _without_the_stores(record: Record) -> Record:
    return replace(record, settings={name: value for name, value in record.settings.items() if name != KEPT})


@dataclass(frozen=True)
class Merged:
    """What came of it: the keys of the trials that were added, and of those that were there already."""

    added: tuple[str, ...]
    kept: tuple[str, ...]


def merge_studies(into: str | os.PathLike[str], parts: Sequence[str | os.PathLike[str]]) -> Merged:
    """Add the finished trials of other stores of the same study to one, which may be new.

    The parts are only read, and may still be running: what they have finished is taken. A trial that is there already
    stays as it is. All records are read and compared before the first trial is written, and a trial is written whole,
    so that a second call goes on after one that was stopped.

    >>> one, other = RunStore("memory://doctest/merge/one"), RunStore("memory://doctest/merge/other")
    >>> one.describe(Description(recipe={"name": "mine"}, fingerprint="12ab", threads=1))
    >>> other.describe(Description(recipe={"name": "yours"}, fingerprint="12ab", threads=1))
    >>> merge_studies("memory://doctest/merge/one", ["memory://doctest/merge/other"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    softknee.lab.studies.store.StoreError: 'memory://...other' holds a study with another recipe: name is ...
    """
    store, others = RunStore(into), [RunStore(part) for part in parts]
    store.refuse_foreign_folder()
    if store.url in [part.url for part in others]:
        raise StoreError(f"'{store.url}' cannot be merged into itself; name the parts after the place they go to.")
    described = [_described(part) for part in others]
    _refuse_others(store, others, described)  # before a new folder is made
    with StudyLock(store.folder):
        _refuse_others(store, others, described)
        there = store.finished()
        for key in there:
            store.record(key)  # what stays is whole, too
        wanted: dict[str, RunStore] = {}
        kept: dict[str, None] = {}
        for other in others:
            for key in other.finished():
                other.record(key)  # whole, or refused before anything is written
                if key in there or key in wanted:
                    kept[key] = None
                else:
                    wanted[key] = other
        if store.description() is None:
            store.describe(described[0])
        for key, other in wanted.items():
            store.take(other, key)
    return Merged(tuple(wanted), tuple(kept))


def _described(store: RunStore) -> Description:
    description = store.description()
    if description is None:
        raise StoreError(f"'{store.url}' holds no study: it has no study.json. Name the folder that --out named.")
    return description


def _refuse_others(store: RunStore, others: Sequence[RunStore], described: Sequence[Description]) -> None:
    description = store.description()
    if description is None and store.finished():
        raise StoreError(f"'{store.url}' holds records of trials and no study.json. Bring that file back.")
    ours = description or described[0]
    for other, theirs in zip(others, described, strict=True):
        what, _ = theirs.other_than(ours)
        if not what and ours.recipe.get("device") == "cpu" and theirs.threads != ours.threads:
            what = f"that ran with {theirs.threads} threads, and not with {ours.threads}: last bits depend on it"
        if what:
            raise StoreError(
                f"'{other.url}' holds a study {what}. Only parts of one study are merged; nothing was changed."
            )
