"""Parts of a study that were run apart are brought together: `softknee study merge`."""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from softknee.lab.studies.reading import find_recipe
from softknee.lab.studies.store import (
    DamagedError,
    Merged,
    RunStore,
    StoreError,
    StudyBusyError,
    StudyLock,
    merge_studies,
)
from study_runs import RECIPE, TUNED, contents, results, run_small, small_recipe, write_points


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_points(tmp_path)


@pytest.fixture
def run(folder: Path):
    return partial(run_small, folder)


@pytest.mark.parametrize("text", [RECIPE, TUNED], ids=["as it is", "tuned"])
def test_parts_make_the_study_that_was_never_divided(run, folder: Path, text: str) -> None:
    recipe = small_recipe(text)
    whole = run(recipe, out=folder / "whole")
    run(recipe, out=folder / "one", only=["smelu beta=1"])
    run(recipe, out=folder / "two", only=["relu", "smelu beta=0.5"])
    before = {name: contents(folder / name) for name in ("one", "two")}
    merged = merge_studies(folder / "all", [folder / "one", folder / "two"])
    assert (len(merged.added), merged.kept) == (len(whole), ())
    assert results(folder / "all") == results(folder / "whole")
    assert RunStore(folder / "all").outcomes() == whole  # in the order of the recipe, and not of the parts
    assert run(recipe, out=folder / "all") == whole  # finished: nothing is left to run
    assert {name: contents(folder / name) for name in before} == before


def test_what_is_there_stays_and_a_second_call_adds_nothing(run, folder: Path) -> None:
    (ours,) = run(out=folder / "study", only=["relu"])
    run(out=folder / "part", command="another", only=["relu", "smelu"])
    kept = (folder / "study" / "trials" / f"{ours.trial.key}.json").read_bytes()
    merged = merge_studies(folder / "study", [folder / "part"])
    assert (len(merged.added), merged.kept) == (2, (ours.trial.key,))
    assert (folder / "study" / "trials" / f"{ours.trial.key}.json").read_bytes() == kept
    after = contents(folder / "study")
    again = merge_studies(folder / "study", [folder / "part", folder / "part"])
    assert again == Merged((), tuple(RunStore(folder / "part").finished()))
    assert contents(folder / "study") == after


def test_what_was_stopped_half_way_is_gone_on_with(run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(out=folder / "part")
    take, taken = RunStore.take, []

    def once(self: RunStore, other: RunStore, key: str) -> None:
        if taken:
            raise KeyboardInterrupt
        take(self, other, key)
        taken.append(key)

    with monkeypatch.context() as stopped:
        stopped.setattr(RunStore, "take", once)
        with pytest.raises(KeyboardInterrupt):
            merge_studies(folder / "all", [folder / "part"])
    assert RunStore(folder / "all").finished() == taken
    assert len(merge_studies(folder / "all", [folder / "part"]).added) == 2
    assert results(folder / "all") == results(folder / "part")


def test_another_study_is_refused_and_nothing_is_made(run, folder: Path) -> None:
    run(out=folder / "one", only=["relu"])
    run(small_recipe(RECIPE, "seeds.count=3"), out=folder / "other", only=["relu"])
    with pytest.raises(StoreError, match=r"other' holds a study with another recipe: seeds.count is 3 there and 2 he"):
        merge_studies(folder / "new", [folder / "one", folder / "other"])
    run(out=folder / "threads", only=["smelu"], threads=7)
    with pytest.raises(StoreError, match="that ran with 7 threads, and not with"):
        merge_studies(folder / "new", [folder / "one", folder / "threads"])
    with pytest.raises(StoreError, match=r"nowhere' holds no study: it has no study"):
        merge_studies(folder / "new", [folder / "nowhere"])
    assert not (folder / "new").exists()
    assert not (folder / "nowhere").exists()
    with pytest.raises(StoreError, match="cannot be merged into itself"):
        merge_studies(folder / "one", [folder / "one"])
    with pytest.raises(StoreError, match="is not empty and holds no study"):
        merge_studies(folder, [folder / "one"])


def test_on_a_gpu_the_number_of_threads_changes_nothing(run, folder: Path) -> None:
    for name, threads in (("one", 1), ("two", 2)):
        run(out=folder / name, only=["relu" if name == "one" else "smelu"], threads=threads)
        described = folder / name / "study.json"
        content = json.loads(described.read_text("utf-8"))
        content["recipe"]["device"] = "cuda"
        described.write_text(json.dumps(content), "utf-8")
    assert len(merge_studies(folder / "all", [folder / "one", folder / "two"]).added) == 3


def test_a_damaged_part_is_named_before_anything_is_written(run, folder: Path) -> None:
    run(out=folder / "one", only=["relu"])
    run(out=folder / "two", only=["smelu"])
    file = max((folder / "two" / "files").iterdir())
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamagedError, match=f"{file.name}', a part of .* has .* bytes where"):
        merge_studies(folder / "all", [folder / "one", folder / "two"])
    assert RunStore(folder / "all").finished() == []
    whole = file.read_bytes() + b"?"  # as long as it was: the checksum finds it
    file.write_bytes(whole)
    with pytest.raises(DamagedError, match="is not what was written there"):
        merge_studies(folder / "all", [folder / "two"])
    assert len(RunStore(folder / "all").finished()) < 2


def test_a_place_where_somebody_works_is_left_alone(run, folder: Path) -> None:
    run(out=folder / "part")
    run(out=folder / "busy", only=["relu"])
    with StudyLock(RunStore(folder / "busy").folder), pytest.raises(StudyBusyError):
        merge_studies(folder / "busy", [folder / "part"])
    with StudyLock(RunStore(folder / "part").folder):  # what a part has finished can be read while it goes on
        assert len(merge_studies(folder / "busy", [folder / "part"]).added) == 2


def test_the_command(run, folder: Path, softknee, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    run(out=folder / "one", only=["relu"])
    run(out=folder / "two", only=["smelu"])
    code, out, _ = softknee("study", "merge", "all", "one")
    assert code == 0
    assert "1 trial was added to 'all'." in out
    assert "1 of 3 activations are there; these are not: smelu beta=0.5, smelu beta=1. Go on" in out
    code, out, _ = softknee("study", "merge", "all", "two", "one")
    assert code == 0
    assert "2 trials were added to 'all'; 1 was there already and stays as it is." in out
    assert "All 3 activations are there. Write the report: softknee report all" in out
    assert softknee("report", "all")[0] == 0
    shutil.rmtree("two")
    os.mkdir("two")
    code, _, err = softknee("study", "merge", "all", "two")
    assert code == 2
    assert "holds no study: it has no study" in err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([], "Go on with: softknee study quickstart --out all --resume"),
        (["seeds.count=2"], "Go on with each --set that it was begun with: softknee study quickstart --set KEY=VALUE"),
        (["name=other"], "Go on with the recipe that it was begun with: softknee study RECIPE --out all --resume"),
    ],
    ids=["as it comes", "changed", "of one's own"],
)
def test_the_command_names_the_recipe_that_goes_on(
    run, folder: Path, softknee, monkeypatch: pytest.MonkeyPatch, settings: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    run(find_recipe("quickstart", settings=settings), out=folder / "one", only=["relu"])
    code, out, _ = softknee("study", "merge", "all", "one")
    assert code == 0
    assert said in out
