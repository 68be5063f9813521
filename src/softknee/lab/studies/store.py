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
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import SoftkneeError
from ...measure.record import Record, RecordError
from .description import Description, StoreError
from .files_anywhere import Folder
from .outcome import Outcome
from .state_file import pack_state, unpack_state

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

    def record(self, key: str, *, with_files: bool = True) -> Record:
        """The record of a finished trial; DamagedError where it is not whole, or of another trial.

        with_files: its files belong to it, and must be there.
        """
        name = f"{TRIALS}/{key}.json"
        content = self.folder.read(name)
        if content is None:
            raise StoreError(f"'{self.url}' has no finished trial {key!r}.")
        source = f"'{self.folder.place(name)}'"
        try:
            record = Record.from_json(content.decode(), source=source)
        except UnicodeDecodeError as error:
            raise DamagedError(f"{source} is no record: it is not text in UTF-8. {_CURE}") from error
        except RecordError as error:
            raise DamagedError(f"{error} {_CURE}") from error
        try:
            found = Outcome.read(record).trial.key
        except (SoftkneeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(f"{source} is not the record of a trial: {error} {_CURE}") from error
        if found != key:
            raise DamagedError(f"{source} is the record of another trial, {found!r}: it was renamed or edited. {_CURE}")
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
        return sorted(records, key=lambda one: self._kept(one).get("position", 0))

    def outcomes(self, *, with_files: bool = True) -> list[Outcome]:
        """Every outcome in the order of the study."""
        return [Outcome.read(one) for one in self.records(with_files=with_files)]

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

    def save_state(self, key: str, parts: Mapping[str, bytes]) -> None:
        """Keep where an unfinished trial stands, in the place of what was kept before."""
        self.folder.write(f"{STATE}/{key}", pack_state(key, parts), what="state of a trial")

    def state(self, key: str) -> Mapping[str, bytes] | None:
        """Where an unfinished trial goes on; None where nothing is kept, or it is damaged or of other software."""
        content = self.folder.read(f"{STATE}/{key}")
        return None if content is None else unpack_state(key, content)

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
        found = record.settings.get(KEPT)
        return found if isinstance(found, Mapping) else {}

    @classmethod
    def _files(cls, record: Record, source: str) -> Mapping[str, Any]:
        kept = cls._kept(record)
        found = kept.get("files")
        if not isinstance(kept.get("position", 0), int):
            raise DamagedError(f"{source} does not say which place it has in its study. {_CURE}")
        if isinstance(found, Mapping) and all(
            _FILE_NAME.fullmatch(name) and isinstance(one, Mapping) and set(one) >= _FILE for name, one in found.items()
        ):
            return found
        raise DamagedError(f"{source} does not say which files belong to it. {_CURE}")


_CURE = (
    "Nothing was changed. Take it from a copy; or use --resume, which sets the record aside as .damaged and runs the "
    "trial again."
)


def _checksum(record: Record) -> str:
    """Of all that a record says, but for what the store has added."""
    return hashlib.sha256(_without_the_stores(record).to_json().encode()).hexdigest()


def _without_the_stores(record: Record) -> Record:
    return replace(record, settings={name: one for name, one in record.settings.items() if name != KEPT})
