"""What the networks of a long study found, kept one by one, so that a run that was stopped can go on.

Each finding is a record of its own in one folder. Runs that share the folder share the work: what is there is not
trained again, and the last run makes one record of all. A folder belongs to one study with one set of settings, and
its networks are all trained on one kind of machine, because a record names one.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> kept = Kept(folder.name, kind="study rate", settings={"epochs": 40}, names=["relu-seed-0", "relu-seed-1"])
>>> kept.put("relu-seed-0", {"accuracy": 91.5})
{'accuracy': 91.5}
>>> again = Kept(folder.name, kind="study rate", settings={"epochs": 40}, names=["relu-seed-0", "relu-seed-1"])
>>> again.missing, again.get("relu-seed-0")
(['relu-seed-1'], {'accuracy': 91.5})
>>> folder.cleanup()
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import ParameterError
from ..files import WriteError, write_whole
from ..measure.machine import Hardware, Versions
from ..measure.record import Record, RecordError
from .studies.running.training import read_tensors, write_tensors

# What follows from the machine; it may differ where nothing is left to be trained.
OF_THE_MACHINE = ("device", "bfloat16")


def file_name(*parts: object) -> str:
    """A name for a finding from texts that may hold anything, such as 'srelu(delta=0.1)'; different texts differ.

    >>> file_name("relu", 0), file_name("srelu(delta=0.1)", 0), file_name("srelu(delta=0,1)", 0)
    ('relu-0', 'srelu-delta=0.1--0-857d', 'srelu-delta=0-1--0-2e55')
    """
    plain = "-".join(map(str, parts))
    simple = re.sub(r"[^A-Za-z0-9._=-]+", "-", plain)
    return plain if simple == plain else f"{simple}-{hashlib.sha256(plain.encode()).hexdigest()[:4]}"


class Kept:
    """The findings of one study in a folder; with None for the folder nothing is kept and nothing is there.

    Args:
        folder: it is made where it is not there yet; the folder around it must be.
        kind: of the study's record; a finding's is "part of" that.
        settings: of the study's record.
        names: of the networks that are wanted; each may be the name of a file.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        *,
        kind: str,
        settings: Mapping[str, Any],
        names: Sequence[str],
    ) -> None:
        self.folder, self.kind = None if folder is None else Path(folder), f"part of {kind}"
        self._part = Record.now(self.kind, command="", rows=(), settings=settings)
        self._kept: dict[str, Record] = {}
        if self.folder is not None:
            _make(self.folder)
            paths = {name: self.folder / f"{name}.json" for name in names}
            self._kept = {name: self._read(path) for name, path in paths.items() if path.exists()}
        self.missing = [name for name in names if name not in self._kept]
        if self.missing:
            self._refuse_another_machine()

    def get(self, name: str) -> Mapping[str, Any] | None:
        """What this network found, if it is there."""
        path = None if self.folder is None else self.folder / f"{name}.json"
        if name not in self._kept and path is not None and path.exists():  # from a run beside this one
            self._kept[name] = self._read(path)
        found = self._kept.get(name)
        return None if found is None else found.rows[0]

    def put(self, name: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep what a network has found just now; it is returned as it would be read again."""
        part = replace(Record.now(self.kind, command="", rows=[row]), settings=self._part.settings)
        if self.folder is not None:
            part.write(self.folder / f"{name}.json")
        self._kept[name] = part
        return part.rows[0]

    def found(
        self, name: str, train: Callable[[], Mapping[str, Any]], *, advance: Callable[[], None], steps: int
    ) -> Mapping[str, Any]:
        """What this network found: as it is kept, or else as `train` finds it now, which is kept from then on.

        `train` reports its progress by itself; of a network that is there already all `steps` are reported at once.
        """
        there = self.get(name)
        if there is None:
            return self.put(name, train())
        for _ in range(steps):
            advance()
        return there

    def put_weights(self, name: str, model: nn.Module) -> str:
        """Keep a network's weights, for those that need it; returns their checksum, "" where nothing is kept."""
        if self.folder is None:
            return ""
        content = write_tensors(model.state_dict())
        write_whole(self.folder / f"{name}.safetensors", content, what="network")
        return hashlib.sha256(content).hexdigest()

    def load_weights(self, name: str, model: nn.Module, *, checksum: str) -> None:
        """Load the weights that were kept under this name; those of another network are refused."""
        assert self.folder is not None
        path = self.folder / f"{name}.safetensors"
        content = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(content).hexdigest() != checksum:
            raise RecordError(
                f"The weights '{path}' are {'damaged' if content else 'not there'}, and '{name}' cannot be trained "
                "again: those who learned from it would have had another one. Put the file back, or delete the folder "
                "to begin anew."
            )
        model.load_state_dict(read_tensors(content))

    def of(self, record: Record) -> Record:
        """The study's record with the machine that its networks were trained on."""
        if not self._kept:
            return record
        first = next(iter(self._kept.values()))
        there = {name: first.settings[name] for name in OF_THE_MACHINE if name in first.settings}
        return replace(
            record,
            hardware=first.hardware,
            versions=first.versions,
            settings={**record.settings, **there},
        )

    def _read(self, path: Path) -> Record:
        try:
            found = Record.read(path)
        except RecordError as error:
            raise RecordError(f"{error} Delete '{path}' to train that network again.") from error
        if found.kind != self.kind or len(found.rows) != 1:
            raise ParameterError(f"'{path}' is no finding of this study (it is {found.kind!r}). Name another folder.")
        for name in {**self._part.settings, **found.settings}:
            mine, theirs = self._part.settings.get(name), found.settings.get(name)
            if name not in OF_THE_MACHINE and mine != theirs:
                raise ParameterError(
                    f"'{path}' was trained with {name} = {theirs!r}, and {mine!r} is asked now. Name another folder, "
                    "or delete this one to begin anew."
                )
        return found

    def _refuse_another_machine(self) -> None:
        here = _machine(self._part.hardware, self._part.versions, self._part.settings)
        for name, found in self._kept.items():
            there = _machine(found.hardware, found.versions, found.settings)
            if there != here:
                raise ParameterError(
                    f"'{name}' in '{self.folder}' was trained on {there}, and what is missing "
                    f"({len(self.missing)} of {len(self.missing) + len(self._kept)}) would be trained on {here}: one "
                    "record cannot hold both. Go on there, or name another folder."
                )


def _machine(hardware: Hardware, versions: Versions, settings: Mapping[str, Any]) -> str:
    where = hardware.cpu if settings.get("device") == "cpu" else hardware.gpu or hardware.cpu
    return f"{where} with torch {versions.torch}"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise WriteError(
            f"The folder '{folder}' for what each network finds could not be made ({error.strerror}). Name a folder "
            "whose parent is there and can be written to."
        ) from error
