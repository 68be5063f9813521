"""Brings the parts of a study together that were run apart: on several GPUs, on several machines, at several times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from .description import Description, StoreError
from .lock import StudyLock
from .store import RunStore


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
    softknee.lab.studies.description.StoreError: 'memory://...other' holds a study with another recipe: name is ...
    """
    store, others = RunStore(into), [RunStore(one) for one in parts]
    store.refuse_foreign_folder()
    if store.url in [one.url for one in others]:
        raise StoreError(f"'{store.url}' cannot be merged into itself; name the parts after the place they go to.")
    described = [_described(one) for one in others]
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
    found = store.description()
    if found is None:
        raise StoreError(
            f"'{store.url}' holds no study that could be merged: it has no study.json. Name the folder that --out "
            "named."
        )
    return found


def _refuse_others(store: RunStore, others: Sequence[RunStore], described: Sequence[Description]) -> None:
    found = store.description()
    if found is None and store.finished():
        raise StoreError(f"'{store.url}' holds records of trials and no study.json. Bring that file back.")
    ours = found or described[0]
    for other, theirs in zip(others, described, strict=True):
        what, _ = theirs.other_than(ours)
        if not what and ours.recipe.get("device") == "cpu" and theirs.threads != ours.threads:
            what = f"that ran with {theirs.threads} threads, and not with {ours.threads}: last bits depend on it"
        if what:
            raise StoreError(
                f"'{other.url}' holds a study {what}. Only parts of one study are merged; nothing was changed."
            )
