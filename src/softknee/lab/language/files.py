"""Which files of pairs a data folder holds: HH and SHP as their authors lay them out, and single files beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import DataError, ParameterError, did_you_mean
from ..data.files import VARIABLE, data_folder

_FOLDERS = {"hh": ("hh-rlhf", "hh"), "shp": ("SHP", "shp")}
_SOURCES = {
    "hh": "huggingface.co/datasets/Anthropic/hh-rlhf (harmless-base/train.jsonl.gz and so on), in a folder 'hh-rlhf'",
    "shp": "huggingface.co/datasets/stanfordnlp/SHP (askacademia/train.json and so on), in a folder 'SHP'",
}
_ENDINGS = (".jsonl", ".json")
SETS = tuple(_FOLDERS)


def find_pairs(
    data: str | os.PathLike[str] | None = None, *, sets: Sequence[str] = ("hh",)
) -> tuple[list[Path], list[Path]]:
    """The files to train on and the files to evaluate on; none of the latter where there is no file for that.

    Args:
        data: a file of pairs, which is then all to train on; or the data folder (default SOFTKNEE_DATA).
        sets: of the data folder, any of "hh" and "shp". The name of a file says what it is for: "train" or "test".
    """
    if data is not None and Path(data).is_file():
        return [Path(data)], []
    root = data_folder(data)
    train: list[Path] = []
    test: list[Path] = []
    for name in sets:
        if name not in _FOLDERS:
            raise ParameterError(f"The sets of pairs are 'hh' and 'shp', not {name!r}.{did_you_mean(name, _FOLDERS)}")
        files = _files(root, name)
        train += [one for one in files if "train" in one.name]
        test += [one for one in files if "test" in one.name]
        if not any("train" in one.name for one in files):
            raise DataError(
                f"No file of {name.upper()} to train on was found in '{root}': looked in "
                f"{' and '.join(repr(one) for one in _FOLDERS[name])} for .jsonl and .json files, also .gz, with "
                f"'train' in their names. It is usually had from {_SOURCES[name]}; softknee downloads nothing. Put it "
                f"there, or name another folder with --data or {VARIABLE}."
            )
    return train, test


def _files(root: Path, name: str) -> list[Path]:
    """Every file of pairs below the set's folder, in an order that does not depend on the disk."""
    places = [root / folder for folder in _FOLDERS[name] if (root / folder).is_dir()]
    found = {one for place in places for one in place.rglob("*") if one.is_file()}
    return sorted(one for one in found if one.name.removesuffix(".gz").endswith(_ENDINGS))
