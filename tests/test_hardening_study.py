"""The hardening study: every column is what it says, repeatable, recorded, shown; what it refuses; its command."""

import itertools
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hardening_networks import KNOBS, RECIPE, network
from idx_files import as_published, write
from softknee.errors import DataError, ParameterError
from softknee.files import WriteError
from softknee.lab import hardening
from softknee.lab.data import images
from softknee.lab.data.images import Split, load_split
from softknee.lab.hardening import (
    COLUMNS,
    Metric,
    Settings,
    Study,
    Task,
    choose_tasks,
    evaluate,
    hardening_markdown,
    hardening_tables,
    run,
    steps,
    train,
    with_relu,
)
from softknee.lab.networks import build
from softknee.measure import Record, RecordError

pytest.importorskip("sklearn", reason="scikit-learn is not installed; it brings the digits")

DIGITS = Task(data="digits", builder="mlp", arguments={"widths": [64, 12, 8, 10]}, recipe=RECIPE)
FASHION = Task(
    data="fashion-mnist",
    builder="cnn",
    arguments={"channels": [2, 3], "classes": 10, "image": [1, 28, 28]},
    recipe=replace(RECIPE, batch=16),
)


@pytest.fixture(scope="module")
def digits() -> Split:
    return load_split("digits", flat=True)


# -- the study ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def study(folder: Path) -> Study:
    pytest.importorskip("safetensors", reason="safetensors is not installed; checkpoints need it")
    settings = Settings(tasks=(DIGITS, FASHION), seeds=(0, 1), device="cpu", data=folder / "data", out=folder / "out")
    write(folder / "data" / "fashion-mnist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(images.SETS, "fashion-mnist", as_published("fashion-mnist"))
        return run(settings, command="softknee study hardening")


def test_every_row_has_its_columns(study: Study) -> None:
    rows = [(outcome.task.data, outcome.entry.name) for outcome in study.outcomes]
    assert rows == [(task, entry) for task in ("digits", "fashion-mnist") for entry in ("gelu", "lambda_gelu", "srelu")]
    for outcome in study.outcomes:
        expected = {*COLUMNS, "chosen_smooth"} if outcome.entry.hardens else {"free", "swapped", "relu"}
        assert set(outcome.metrics) == expected
        assert all(len(found) == 2 for found in outcome.metrics.values())
        # The same ReLU networks stand in every row of a data set.
        same = next(one for one in study.outcomes if one.task is outcome.task)
        assert outcome.metrics["relu"] == same.metrics["relu"]
        # Each column is of a network of its own: smooth and swapped ones differ in their loss.
        assert outcome.metrics["free"] != outcome.metrics["swapped"]
        assert outcome.metrics["free"][0] != outcome.metrics["free"][1]


def test_two_epochs_learn_something(study: Study) -> None:
    for outcome in study.outcomes:
        if outcome.task.data == "digits":
            # A tenth would be guessing.
            for column, found in outcome.metrics.items():
                assert found[0].accuracy > 25, column


def test_the_checkpoints_are_the_networks_of_the_table(study: Study, folder: Path, digits: Split) -> None:
    from softknee.lab.checkpoint import load_checkpoint

    names = {path.name for path in (folder / "out").iterdir()}
    functions = ("relu", *KNOBS)
    tasks = ("digits", "fashion-mnist")
    assert names == {f"{task}-{name}-seed{seed}" for task in tasks for name in functions for seed in (0, 1)}
    for outcome in study.outcomes[:3]:
        column, name = ("hardened" if outcome.entry.hardens else "free"), outcome.entry.name
        for seed in (0, 1):
            found = load_checkpoint(folder / "out" / f"digits-{name}-seed{seed}")
            assert found.task == {"data": "digits", "metric": "accuracy"}
            metric = evaluate(found.model, digits.test_images, digits.test_labels)
            assert metric == outcome.metrics[column][seed]
            if outcome.entry.hardens:
                relu = evaluate(with_relu(found.model), digits.test_images, digits.test_labels)
                assert relu == outcome.metrics["replaced"][seed]
    scratch = load_checkpoint(folder / "out" / "digits-relu-seed1").model
    assert evaluate(scratch, digits.test_images, digits.test_labels) == study.outcomes[0].metrics["relu"][1]


def test_each_column_is_what_it_says(digits: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainings once more, put together here; the first epoch is made the best, so that best and end differ."""
    falling = itertools.count(-1, -1)
    monkeypatch.setattr(hardening, "evaluate", lambda *_: Metric(accuracy=next(falling), loss=0.0))
    done = run(Settings(tasks=(DIGITS,), seeds=(1,), device="cpu"), command="softknee study hardening")
    relu = build("mlp", widths=[64, 12, 8, 10], activation="torch:relu", seed=1)
    scratch = train(relu, digits, RECIPE, seed=1, harden=False).at_best()
    for outcome in done.outcomes:
        metrics = {column: found[0] for column, found in outcome.metrics.items()}
        free = train(network(outcome.entry.name, seed=1), digits, RECIPE, seed=1, harden=False).at_best()
        expected = {"free": free, "swapped": with_relu(free), "relu": scratch}
        if outcome.entry.hardens:
            hardened = train(network(outcome.entry.name, seed=1), digits, RECIPE, seed=1, harden=True)
            end, best = hardened.network, hardened.at_best()
            expected |= {"hardened": end, "replaced": with_relu(end), "chosen_smooth": best, "chosen": with_relu(best)}
            assert outcome.best_epochs["hardened"] == (1,)
            assert metrics["chosen_smooth"] != metrics["hardened"]
            assert metrics["chosen"] != metrics["replaced"]
        assert metrics == {k: evaluate(net, digits.test_images, digits.test_labels) for k, net in expected.items()}


def test_the_same_settings_give_the_same_numbers(study: Study) -> None:
    told: list[str] = []
    settings = Settings(tasks=(DIGITS,), seeds=(1,), device="cpu")
    again = run(settings, command="softknee study hardening", advance=told.append)
    for first, second in zip(study.outcomes[:3], again.outcomes, strict=True):
        for column, found in second.metrics.items():
            assert found[0] == first.metrics[column][1]
    # One run of ReLU, one of GELU, two of each that hardens, two epochs each.
    assert len(told) == steps(settings) == 12
    assert {one.removeprefix("digits ") for one in told} == {"relu", *KNOBS}


def test_the_record_holds_it_all(study: Study) -> None:
    record = study.record
    assert Record.from_json(record.to_json()) == record
    assert record.settings["tasks"]["digits"]["freeze_epoch"] == 1
    assert record.settings["tasks"]["fashion-mnist"]["images"] == "fashion-mnist: 40 training, 10 validation, 20 test"
    row = record.rows[2]
    outcome = study.outcomes[2]
    free, hard = ([one.accuracy for one in outcome.metrics[column]] for column in ("free", "hardened"))
    assert row["accuracy"]["free"].value == pytest.approx(sum(free) / 2)
    assert row["accuracy"]["free"].spread == pytest.approx(abs(free[0] - free[1]) / math.sqrt(2))
    assert row["cost_of_hardening"].value == pytest.approx((sum(free) - sum(hard)) / 2)
    knobs = {(one["run"], one["when"], one["layer"]): one["knob"].value for one in row["hardness_profile"]}
    assert len(knobs) == 2 * 3 * 2
    assert knobs["free", "start", "1"] == pytest.approx(1.0)
    assert knobs["hardened", "end", "3"] == pytest.approx(16 / 3 * 5e-3)
    assert knobs["hardened", "freeze", "3"] == knobs["free", "freeze", "3"]
    assert "cost_of_hardening" not in record.rows[0]


def test_the_table_shows_the_record(study: Study) -> None:
    tables = hardening_tables(study.record)
    assert [table.title.split(",")[0] for table in tables] == ["MLP on digits", "CNN on fashion-mnist"]
    assert tables[0].rows[0][2] == "–"
    accuracy = study.outcomes[1].accuracy("replaced")
    assert accuracy is not None
    assert tables[0].rows[1][3] == accuracy.text(2)
    text = hardening_markdown(study.record)
    assert f"| {' | '.join(tables[1].rows[2])} |" in text
    assert text.count("| activation |") == 2
    assert "srelu: knobs by layer" in text
    with pytest.raises(RecordError, match="is of 'bench kernels'"):
        hardening_tables(replace(study.record, kind="bench kernels"))


# -- what is refused ------------------------------------------------------------------------------------


def test_missing_data_is_said_before_anything_is_trained_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOFTKNEE_DATA", raising=False)
    told: list[str] = []
    settings = Settings(out=tmp_path / "out", device="cpu")
    with pytest.raises(DataError, match="set the environment variable SOFTKNEE_DATA"):
        run(settings, command="softknee study hardening", advance=told.append)
    settings = replace(settings, data=tmp_path)
    with pytest.raises(DataError, match=r"Fashion-MNIST \(train images\) has no file"):
        run(settings, command="softknee study hardening", advance=told.append)
    assert told == []
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    settings = Settings(tasks=(DIGITS,), out=tmp_path / "file" / "out", device="cpu")
    with pytest.raises(WriteError, match="cannot be made"):
        run(settings, command="softknee study hardening", advance=told.append)
    assert told == []


def test_checkpoints_without_safetensors_are_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardening.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hardening.MissingToolError, match="pip install"):
        run(Settings(tasks=(DIGITS,), out=tmp_path / "out"), command="softknee study hardening")


def test_settings_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(ParameterError, match="a task and a seed at least"):
        Settings(seeds=())
    with pytest.raises(ParameterError, match="Take 4 epochs or more"):
        Settings(tasks=choose_tasks(["digits"], epochs=3))
    with pytest.raises(ParameterError, match="Did you mean 'digits'"):
        choose_tasks(["digit"])
    assert [task.data for task in choose_tasks()] == ["digits", "fashion-mnist"]
    assert choose_tasks(["digits"], epochs=7)[0].recipe.epochs == 7


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("typer", reason="typer is not installed; the extra 'lab' brings it")
    from softknee.app import main

    arguments = ["--only", "digits", "--seeds", "2", "--epochs", "4", "--device", "cpu"]
    files = ["--out", str(tmp_path / "out"), "--json", str(tmp_path / "record.json")]
    monkeypatch.setattr(sys, "argv", ["softknee", "study", "hardening", *arguments, *files])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code in (0, None)
    out = capsys.readouterr().out
    assert "lambda_gelu" in out
    assert max(len(line) for line in out.splitlines()) <= 100
    record = Record.read(tmp_path / "record.json")
    assert record.seeds == (0, 1)
    # Every number of the table stands on the screen unbroken.
    for line in hardening_tables(record)[0].rows:
        assert all(cell in out for cell in line)
    assert (tmp_path / "out" / "hardening.md").read_text(encoding="utf-8") == hardening_markdown(record)
    assert (tmp_path / "out" / "digits-srelu-seed1").is_dir()
