"""What a run store is of: the file `study.json`, read with care, and compared with what is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import SoftkneeError
from ...version import VERSION

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
    softknee.lab.studies.description.StoreError: 'here' holds a study with another recipe: seeds.count is 3 there...
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
            found = json.loads(content.decode())
            if not isinstance(found, dict) or found.get("format") != FORMAT:
                raise ValueError("it describes no study")
            if found.get("schema") != SCHEMA:
                raise ValueError(f"it has schema {found.get('schema')!r}, and this softknee reads {SCHEMA}")
            kinds = {"recipe": dict, "fingerprint": str, "threads": int, "softknee": str}
            wrong = [name for name, kind in kinds.items() if not isinstance(found.get(name), kind)]
            if wrong or found["threads"] < 1:
                raise ValueError(f"it has no valid {(*wrong, 'threads')[0]!r}")
        except (ValueError, RecursionError) as error:  # what is not UTF-8 or not JSON is a ValueError as well
            raise StoreError(
                f"'{source}' cannot be used ({error}). Take it from a copy; or remove it and run the study again with "
                "--resume: every record says itself which trial it is of."
            ) from error
        return cls(**{name: found[name] for name in kinds})

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
