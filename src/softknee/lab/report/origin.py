"""Where a report comes from: the command, the recipe, the machines and versions that its trials ran with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...measure.machine import Hardware, Versions
from ...measure.record import Record, without_paths
from ..studies.reading import to_yaml
from ..studies.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Origin:
    """All of it as text; several machines or versions are several lines."""

    command: str
    recipe: str
    seeds: str
    hardware: tuple[str, ...]
    versions: tuple[str, ...]
    created: str

    def facts(self) -> list[tuple[str, str]]:
        """Name and words, one after the other."""
        found = [("Seeds", self.seeds)]
        found += [("Hardware", words) for words in self.hardware]
        found += [("Versions", words) for words in self.versions]
        return found + ([("Measured", self.created)] if self.created else [])


def origin_of(recipe: Recipe, *, command: str, records: Sequence[Record] = ()) -> Origin:
    """From the records of the trials; without any, of the machine that this runs on."""
    machines = [record.hardware for record in records] or [Hardware.here()]
    versions = [record.versions for record in records] or [Versions.here()]
    days = sorted(record.created for record in records)
    words = [day.replace("T", " ").replace("Z", " UTC") for day in dict.fromkeys((days[0], days[-1]))] if days else []
    return Origin(
        command=without_paths(command),
        recipe=to_yaml(recipe),
        seeds=", ".join(str(seed) for seed in recipe.seeds.numbers),
        hardware=tuple(dict.fromkeys(one.sentence() for one in machines)),
        versions=tuple(dict.fromkeys(one.sentence() for one in versions)),
        created=" to ".join(words),
    )
