"""Running a study: what is finished is not run again, what does not belong is refused, and Ctrl-C stops cleanly."""

import json
import os
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from softknee.errors import InputError, ParameterError
from softknee.lab.studies.engine import StudyStopped
from softknee.lab.studies.reading import dump, read_recipe
from softknee.lab.studies.reporting import recipe_of
from softknee.lab.studies.running import QUIET, run_trial
from softknee.lab.studies.store import DamagedError, RunStore, StoreError, git_state
from softknee.lab.studies.trials import choose_tuned
from study_runs import RECIPE, TUNED, Silent, contents, quick_trial, results, run_small, small_recipe, write_points


class Counting:
    """The stand-in for training, which remembers what it was asked for and may be made to fail."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.epochs = 0
        self.on_step: Any = lambda number: None
        self.steps = 0

    def __call__(self, trial: Any, *, watch: Any = QUIET, **others: Any) -> Any:
        self.keys.append(trial.key)
        outer = self

        class Between:
            def step(self) -> None:
                outer.steps += 1
                outer.on_step(outer.steps)
                watch.step()

            def epoch(self, done: int, total: int, save: Any) -> None:
                outer.epochs += 1
                watch.epoch(done, total, save)

        return quick_trial(trial, watch=Between(), **others)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_points(tmp_path)


@pytest.fixture
def run(folder: Path):
    return partial(run_small, folder)


def test_every_trial_is_run_once_and_then_read(run, folder: Path) -> None:
    counting = Counting()
    outcomes = run(trial=counting)
    assert [outcome.trial.activation.label for outcome in outcomes] == ["relu", "smelu beta=0.5", "smelu beta=1"]
    assert counting.keys == [item.trial.key for item in outcomes]
    before = contents(folder / "study")
    assert run(trial=counting) == run(trial=counting, resume=True) == outcomes
    assert len(counting.keys) == 3
    assert contents(folder / "study") == before
    store = RunStore(folder / "study")
    assert store.outcomes() == outcomes
    result = store.description()
    assert result is not None
    assert read_recipe(dump(result.recipe)) == small_recipe()
    assert store.record(outcomes[0].trial.key).command == "softknee study small.yaml"


def test_a_device_that_is_missing_is_said_before_anything_is_written(
    run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = small_recipe(RECIPE, "device=cuda:99")
    with pytest.raises(InputError, match=r"(cuda:99|No CUDA device) .*--smoke.*--set device=cpu"):
        run(elsewhere)
    assert not (folder / "study").exists()
    # What was trained where there is such a device can be read here; what is left of it cannot be trained.
    with monkeypatch.context() as there:
        there.setattr("softknee.lab.studies.runner.need_device", lambda *_, **__: None)
        outcomes = run(elsewhere)
    assert run(elsewhere) == outcomes
    os.remove(folder / "study" / "trials" / f"{outcomes[1].trial.key}.json")
    with pytest.raises(InputError, match="--set device=cpu"):
        run(elsewhere, resume=True)


def test_tuning_comes_first_and_decides_the_training(run) -> None:
    counting = Counting()
    outcomes = run(small_recipe(TUNED), trial=counting)
    kinds = [outcome.trial.kind for outcome in outcomes]
    assert kinds == ["tune"] * 6 + ["train"] * 3
    assert counting.keys == [value.trial.key for value in outcomes]
    chosen = choose_tuned(outcomes[:6])
    rates = {item.trial.activation.label: item.trial.training.learning_rate for item in outcomes[6:]}
    assert rates == {label: rate for label, (rate, _) in chosen.items()}
    assert set(rates.values()) == {1e-3, 1e-2}  # the stand-in's numbers choose both: the choice has an effect


def test_a_store_of_objects_holds_the_same(run, folder: Path) -> None:
    there = f"memory://{folder.name}/study"
    assert run(out=there) == run() == run(out=there)
    assert RunStore(there).outcomes() == RunStore(folder / "study").outcomes()
    assert RunStore(there).folder.read(".lease") is None


def test_an_unfinished_study_is_refused_without_resume_and_gone_on_with_resume(run, folder: Path) -> None:
    outcomes = run()
    os.remove(folder / "study" / "trials" / f"{outcomes[1].trial.key}.json")
    before, counting = contents(folder / "study"), Counting()
    with pytest.raises(StoreError, match=r"unfinished, with 2 trials done\. Use --resume .* or .*--out"):
        run(trial=counting)
    assert contents(folder / "study") == before
    assert counting.keys == []
    assert run(trial=counting, resume=True) == outcomes
    assert counting.keys == [outcomes[1].trial.key]


def test_another_recipe_and_other_data_are_refused(run, folder: Path) -> None:
    run()
    before = contents(folder / "study")
    other = small_recipe(RECIPE, "training.epochs=9", "seeds=5")
    with pytest.raises(StoreError, match=r"seeds\.count is 2 there and 5 here") as refused:
        run(other, resume=True)
    assert "training.epochs is 4 there and 9 here" in str(refused.value)
    write_points(folder, rows=81)
    with pytest.raises(StoreError, match="the data have changed"):
        run(resume=True)
    assert contents(folder / "study") == before


def test_a_damaged_record_is_refused_or_set_aside_and_run_again(run, folder: Path) -> None:
    outcomes = run()
    key = outcomes[1].trial.key
    record = folder / "study" / "trials" / f"{key}.json"
    whole, expected = record.read_bytes(), results(folder / "study")
    record.write_bytes(whole[:100])
    with pytest.raises(DamagedError, match=f"{key}.json.*ends too early|{key}.json.*damaged"):
        run()
    assert record.read_bytes() == whole[:100]
    display = Silent()
    assert run(resume=True, display=display) == outcomes
    assert any(f"kept as trials/{key}.json.damaged" in line for line in display.lines)
    aside = folder / "study" / "trials" / f"{key}.json.damaged"
    assert aside.read_bytes() == whole[:100]
    aside.unlink()
    (folder / "study" / "files" / f"{key}.links.txt.damaged").unlink()
    assert results(folder / "study") == expected


def test_a_file_with_another_byte_is_found_by_resuming_and_made_anew(run, folder: Path) -> None:
    outcomes = run()
    key, expected = outcomes[1].trial.key, results(folder / "study")
    file = folder / "study" / "files" / f"{key}.links.txt"
    changed = b"?" + file.read_bytes()[1:]  # as long as it was
    file.write_bytes(changed)
    display = Silent()
    assert run(resume=True, display=display) == outcomes
    assert any("is not what was written there" in line and "runs again" in line for line in display.lines)
    aside = folder / "study" / "files" / f"{key}.links.txt.damaged"
    assert aside.read_bytes() == changed
    aside.unlink()
    (folder / "study" / "trials" / f"{key}.json.damaged").unlink()
    assert results(folder / "study") == expected


def test_a_recipe_that_cannot_be_used_here_is_named_by_its_file(run, folder: Path) -> None:
    run(only=["relu"])
    described = folder / "study" / "study.json"
    described.write_text(described.read_text("utf-8").replace('"relu"', '"mine"'), "utf-8")
    with pytest.raises(StoreError, match=r"study.json' holds a recipe that cannot be used here.*no activation named"):
        recipe_of(RunStore(folder / "study"))


def test_a_record_of_another_study_is_refused_or_kept_apart(run, folder: Path) -> None:
    (foreign, *_) = run(small_recipe(RECIPE, "training.epochs=9"), out=folder / "other")
    outcomes = run()
    name = f"trials/{foreign.trial.key}.json"
    shutil.copy(folder / "other" / name, folder / "study" / name)
    with pytest.raises(
        StoreError, match=f"{foreign.trial.key}.json' is the record of a trial that this study does not"
    ):
        run()
    display = Silent()
    assert run(resume=True, display=display) == outcomes
    assert (folder / "study" / f"{name}.foreign").read_bytes() == (folder / "other" / name).read_bytes()
    assert any(".foreign" in line for line in display.lines)


def test_records_without_their_description_are_kept(run, folder: Path) -> None:
    outcomes, counting = run(), Counting()
    (folder / "study" / "study.json").write_text("{")
    with pytest.raises(
        StoreError, match=r"study.json' cannot be used .* remove it and run the study again with --resume"
    ):
        run(resume=True)
    (folder / "study" / "study.json").unlink()
    with pytest.raises(StoreError, match=r"holds records of trials and no study\.json"):
        run()
    assert run(resume=True, trial=counting) == outcomes
    assert counting.keys == []


def test_a_folder_of_other_things_is_refused(run, folder: Path) -> None:
    with pytest.raises(StoreError, match=r"holds no study: 'points.csv' is there"):
        run(out=folder)
    assert os.listdir(folder) == ["points.csv"]


def test_ctrl_c_stops_after_the_step_and_the_study_goes_on_from_the_last_epoch(run, folder: Path) -> None:
    expected = run(out=folder / "whole")
    counting = Counting()
    # In the second step of the third epoch of the second trial.
    counting.on_step = lambda number: signal.raise_signal(signal.SIGINT) if number == 12 + 6 + 2 else None
    with pytest.raises(StudyStopped, match=r"1 trial is finished .* Go on with: softknee study small.yaml --resume"):
        run(trial=counting)
    assert counting.steps == 12 + 6 + 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [path.name for path in (folder / "study" / "state").iterdir()] == [expected[1].trial.key]
    again = Counting()
    assert run(trial=again, resume=True) == expected
    assert again.keys == [item.trial.key for item in expected[1:]]
    # Two epochs of the second trial were done; the state may be that of the first where the machine was slow just then.
    assert 2 + 4 <= again.epochs <= 3 + 4
    assert results(folder / "study") == results(folder / "whole")
    assert not list((folder / "study" / "state").iterdir())


def test_a_second_ctrl_c_stops_at_once(run) -> None:
    counting = Counting()

    def twice(number: int) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    counting.on_step = twice
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(trial=counting)
    assert not isinstance(stopped.value, StudyStopped)
    assert counting.steps == 1
    assert len(run(resume=True)) == 3  # and the lock is free


def test_every_outcome_is_told_once(run, folder: Path) -> None:
    told: list[Any] = []
    outcomes = run(each=told.append)
    assert told == outcomes
    os.remove(folder / "study" / "trials" / f"{outcomes[0].trial.key}.json")
    run(each=told.append, resume=True)
    assert sorted(item.trial.key for item in told[3:]) == sorted(outcome.trial.key for outcome in outcomes)


def test_where_ctrl_c_is_ignored_it_stays_so(run) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        counting = Counting()
        counting.on_step = lambda number: signal.raise_signal(signal.SIGINT)
        assert len(run(trial=counting)) == 3
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_state_that_does_not_fit_is_left_out(run, folder: Path) -> None:
    recipe = small_recipe(RECIPE, "activations=[relu]")
    expected = run(recipe, out=folder / "whole", trial=run_trial)
    store = RunStore(folder / "study")
    store.save_state(expected[0].trial.key, b"{}")
    display = Silent()
    actual = run(recipe, trial=run_trial, resume=True, display=display, threads=torch.get_num_threads())
    assert any("begins anew" in line for line in display.lines)
    assert [item.test for item in actual] == [value.test for value in expected]


def test_an_error_in_a_trial_leaves_the_study_to_go_on_with(run) -> None:
    counting = Counting()

    def fail(number: int) -> None:
        if number == 15:
            raise ParameterError("The trial cannot be run.")

    counting.on_step = fail
    with pytest.raises(ParameterError, match="cannot be run"):
        run(trial=counting)
    assert len(run(resume=True)) == 3


def test_a_study_keeps_to_the_threads_it_began_with(run, folder: Path) -> None:
    seen: list[int] = []

    def trial(given: Any, **others: Any) -> Any:
        seen.append(torch.get_num_threads())
        return quick_trial(given, **others)

    before = torch.get_num_threads()
    outcomes = run(trial=trial, threads=3)
    os.remove(folder / "study" / "trials" / f"{outcomes[0].trial.key}.json")
    run(trial=trial, resume=True)
    assert seen == [3] * 4
    assert torch.get_num_threads() == before
    with pytest.raises(StoreError, match="begun with 3 threads, and 2 were asked for"):
        run(resume=True, threads=2)
    for wrong in ({"threads": 0}, {"engine": "rya"}):
        with pytest.raises(ParameterError, match=r"at least 1|'local' and 'ray'"):
            run(**wrong)


def test_git_is_in_the_record_where_there_is_a_checkout(folder: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    monkeypatch.chdir(folder)
    assert git_state() is None
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "points.csv"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    (outcome, *_) = run()
    record = RunStore(folder / "study").record(outcome.trial.key)
    assert record.settings["git"] == {"commit": commit, "dirty": False}
    (folder / "points.csv").write_text("changed")
    assert git_state() == {"commit": commit, "dirty": True}
    monkeypatch.setenv("PATH", "")
    assert git_state() is None


def test_the_real_trials_give_the_same_twice(run, folder: Path) -> None:
    two = "activations=[relu, gelu]"
    timed = small_recipe(RECIPE, two, "measures=[prediction_difference, cost]")
    first = run(timed, out=folder / "first", trial=run_trial)
    second = run(small_recipe(RECIPE, two), out=f"memory://{folder.name}/second", trial=run_trial)
    assert [value.trial.kind for value in first] == ["train", "train", "cost"]
    for item, other in zip(first[:2], second, strict=True):
        assert (item.test, item.curves, item.difference) == (other.test, other.curves, other.difference)
        assert item.difference["delta_1"]["value"] > 0
    key = first[0].trial.key
    there = RunStore(f"memory://{folder.name}/second")
    assert there.file(key, "predictions.safetensors") == RunStore(folder / "first").file(key, "predictions.safetensors")
    assert json.loads((folder / "first" / "study.json").read_text())["fingerprint"] == first[0].trial.fingerprint
