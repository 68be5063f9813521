"""The hardening study: fair, repeatable, and true to Algorithm 1; what it calls replaced is a ReLU network."""

import copy
import doctest
import itertools
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from idx_files import as_published, write
from softknee.errors import DataError, ParameterError
from softknee.files import WriteError
from softknee.lab import data_folder, hardening_runs, hardening_study, idx, networks, splits
from softknee.lab.hardening_runs import Metric, Recipe, evaluate, profile, repeatable, train, with_relu
from softknee.lab.hardening_study import COLUMNS, ENTRIES, Settings, Study, Task, choose_tasks, run, steps
from softknee.lab.hardening_table import hardening_markdown, hardening_tables
from softknee.lab.networks import build
from softknee.lab.splits import Split, load_split
from softknee.measure import Record, RecordError
from softknee.surgery.hardening import Hardener

pytest.importorskip("sklearn", reason="scikit-learn is not installed; it brings the digits")

RECIPE = Recipe(epochs=2, batch=64, learning_rate=0.01, weight_decay=0.01, start=0.5)
DIGITS = Task(data="digits", builder="mlp", arguments={"widths": [64, 12, 8, 10]}, recipe=RECIPE)
FASHION = Task(
    data="fashion-mnist",
    builder="cnn",
    arguments={"channels": [2, 3], "classes": 10, "image": [1, 28, 28]},
    recipe=replace(RECIPE, batch=16),
)
KNOBS = {entry.name: dict(entry.knobs) for entry in ENTRIES}
HARDENING = [entry.name for entry in ENTRIES if entry.hardens]


@pytest.fixture(scope="module")
def digits() -> Split:
    return load_split("digits", flat=True)


def network(name: str, *, seed: int = 0) -> nn.Sequential:
    return build("mlp", widths=[64, 12, 8, 10], activation=name, seed=seed, **KNOBS[name])


def states(name: str, data: Split, recipe: Recipe, *, harden: bool) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    """A run, and the state of its network after every epoch."""
    seen: list[dict[str, torch.Tensor]] = []
    watch = lambda epoch, net: seen.append(copy.deepcopy(net.state_dict()))  # noqa: E731
    return train(network(name), data, recipe, seed=3, harden=harden, watch=watch), seen


# -- the data -------------------------------------------------------------------------------------------


def test_the_parts_of_a_data_set_are_apart_and_always_the_same(digits: Split) -> None:
    from softknee.lab.digits import load_digits

    whole = load_digits()
    rows = torch.cat([digits.train_images, digits.validation_images])
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, whole.train_images.tolist()))
    # Each image goes with its own label.
    pairs = zip(whole.train_images.tolist(), whole.train_labels.tolist(), strict=True)
    known = {tuple(image): label for image, label in pairs}
    assert [known[tuple(one)] for one in digits.validation_images.tolist()] == digits.validation_labels.tolist()
    assert [known[tuple(one)] for one in digits.train_images.tolist()] == digits.train_labels.tolist()
    assert torch.equal(digits.test_images, whole.test_images)
    assert torch.equal(load_split("digits", flat=True).validation_images, digits.validation_images)
    images = load_split("digits")
    assert images.train_images.shape[1:] == (1, 8, 8)
    assert torch.equal(images.train_images.flatten(1), digits.train_images)
    assert digits.to("meta").validation_labels.is_meta


def test_an_unknown_data_set_is_named() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'mnist'"):
        load_split("mnis")


@pytest.mark.parametrize("module", [data_folder, idx, networks, splits], ids=lambda one: one.__name__)
def test_the_examples_of_the_docstrings_run(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


# -- one run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HARDENING)
def test_free_and_hardened_are_one_run_until_the_knobs_freeze(name: str, digits: Split) -> None:
    recipe = replace(RECIPE, epochs=5, start=0.45)
    assert recipe.freeze_epoch == 2
    assert Hardener(network(name), total=5, start=0.45).last_free == 2
    free, free_states = states(name, digits, recipe, harden=False)
    hardened, hard_states = states(name, digits, recipe, harden=True)
    for epoch in (1, 2):
        for key, value in free_states[epoch - 1].items():
            assert torch.equal(value, hard_states[epoch - 1][key])
    assert not torch.equal(free_states[2]["0.weight"], hard_states[2]["0.weight"])
    assert free.profiles["start"] == hardened.profiles["start"]
    assert free.profiles["freeze"] == hardened.profiles["freeze"] != free.profiles["start"]
    # The free one goes on learning.
    assert free.profiles["end"] != free.profiles["freeze"]


def test_the_knobs_follow_algorithm_1(digits: Split) -> None:
    recipe = replace(RECIPE, epochs=5, start=0.45)
    seen: list[dict[str, float]] = []
    done = train(
        network("lambda_gelu"), digits, recipe, seed=0, harden=True, watch=lambda _, net: seen.append(profile(net))
    )
    assert list(seen[0]) == ["1", "3"]
    target = 2 / (5e-3 * math.sqrt(2 * math.pi))
    for path, begin in seen[1].items():
        for epoch in (3, 4, 5):
            expected = begin + (epoch - 2) / (5 - 2) * (target - begin)
            assert seen[epoch - 1][path] == pytest.approx(expected, rel=1e-6)
    assert done.profiles["end"] == seen[-1]


def test_training_is_the_plain_loop(digits: Split) -> None:
    """AdamW on three groups, cosine by epoch, batches in the generator's order: written out, the same bits."""
    done = train(network("srelu"), digits, RECIPE, seed=3, harden=False)
    net = network("srelu")
    knees = [net[at].raw_delta for at in (1, 3)]
    linears = [net[at] for at in (0, 2, 4)]
    adam = torch.optim.AdamW(
        [
            {"params": [one.weight for one in linears], "weight_decay": 0.01},
            {"params": [one.bias for one in linears], "weight_decay": 0.0},
            {"params": knees, "weight_decay": 0.0},
        ]
    )
    random = torch.Generator().manual_seed(3)
    for rate in (0.01, 0.005):
        for group, factor in zip(adam.param_groups, (1, 1, 9), strict=True):
            group["lr"] = rate * factor
        order = torch.randperm(len(digits.train_labels), generator=random)
        for at in range(0, len(order), 64):
            some = order[at : at + 64]
            adam.zero_grad()
            nn.functional.cross_entropy(net(digits.train_images[some]), digits.train_labels[some]).backward()
            adam.step()
    for key, value in net.state_dict().items():
        torch.testing.assert_close(value, done.network.state_dict()[key], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("harden", [False, True])
def test_the_best_epoch_is_the_best_by_validation(digits: Split, monkeypatch: pytest.MonkeyPatch, harden: bool) -> None:
    """With metrics as we give them: of equal accuracies the smaller loss is chosen, and of equal losses the first."""
    given = [(60.0, 0.1), (80.0, 0.5), (80.0, 0.4), (80.0, 0.4), (70.0, 0.2)]
    metrics = [Metric(accuracy=accuracy, loss=loss) for accuracy, loss in given]
    asked: list[torch.Tensor] = []
    monkeypatch.setattr(
        hardening_runs, "evaluate", lambda net, images, labels: asked.append(images) or metrics[len(asked) - 1]
    )
    done, seen = states("srelu", digits, replace(RECIPE, epochs=5, start=0.4), harden=harden)
    assert all(images is digits.validation_images for images in asked)
    assert (done.best_epoch, done.validation) == (3, tuple(metrics))
    for key, value in done.at_best().state_dict().items():
        assert torch.equal(value, seen[2][key])
    for key, value in done.network.state_dict().items():
        assert torch.equal(value, seen[4][key])
    assert not torch.equal(seen[2]["0.weight"], seen[4]["0.weight"])


def test_evaluation_is_a_count_and_a_mean(digits: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("gelu")
    logits = net(digits.test_images)
    right = sum(int(row.argmax()) == label for row, label in zip(logits, digits.test_labels.tolist(), strict=True))
    each = logits.double().log_softmax(1).gather(1, digits.test_labels[:, None])
    found = evaluate(net, digits.test_images, digits.test_labels)
    assert found.accuracy == 100 * right / 899
    assert found.loss == pytest.approx(-each.mean().item(), rel=1e-6)
    monkeypatch.setattr(hardening_runs, "_EVALUATED_AT_ONCE", 100)
    assert evaluate(net, digits.test_images, digits.test_labels).accuracy == found.accuracy


def test_the_settings_of_the_backend_are_put_back() -> None:
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark

    @repeatable()
    def fails() -> None:
        assert torch.backends.cudnn.deterministic
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert before == (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible to torch")
def test_on_a_gpu_runs_share_their_bits_too() -> None:
    """A convolutional network, free, hardened, and free again: one run until the knobs freeze, and twice the same."""
    random = torch.Generator().manual_seed(0)
    images, labels = torch.randn(600, 1, 28, 28, generator=random), torch.randint(10, (600,), generator=random)
    parts = {f"{part}_images": images for part in ("train", "validation", "test")}
    parts |= {f"{part}_labels": labels for part in ("train", "validation", "test")}
    data = Split(name="noise", normalisation="none", **parts).to("cuda")
    recipe = replace(RECIPE, epochs=4)
    seen: dict[str, list[dict[str, torch.Tensor]]] = {}
    for run_name, harden in (("free", False), ("hardened", True), ("again", False)):
        net = build("cnn", activation="srelu", learn=True, delta=1.0).to("cuda")
        kept = seen.setdefault(run_name, [])
        watch = lambda epoch, one, kept=kept: kept.append(copy.deepcopy(one.state_dict()))  # noqa: E731
        train(net, data, recipe, seed=0, harden=harden, watch=watch)
    for epoch, states_then in enumerate(seen["free"], start=1):
        for key, value in states_then.items():
            assert torch.equal(value, seen["again"][epoch - 1][key])
            assert epoch > recipe.freeze_epoch or torch.equal(value, seen["hardened"][epoch - 1][key])


# -- replacement ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOBS)
def test_a_replaced_network_is_plain_torch_and_computes_relu(name: str, digits: Split) -> None:
    net = network(name, seed=4)
    before = copy.deepcopy(net.state_dict())
    plain = with_relu(net)
    assert all(type(module).__module__.startswith("torch.nn.") for module in plain.modules())
    assert [type(module) for module in plain] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    y = digits.test_images
    for at in (0, 2, 4):
        layer = net[at]
        assert isinstance(layer, nn.Linear)
        y = layer(y if at == 0 else y.clamp(min=0))
    assert torch.equal(plain(digits.test_images), y)
    # The network itself is as it was.
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert not torch.equal(net(digits.test_images), y)


@pytest.mark.parametrize("name", HARDENING)
def test_at_no_distance_nothing_is_lost_by_replacing(name: str, digits: Split) -> None:
    exact = train(network(name), digits, replace(RECIPE, tolerance=1e-12), seed=0, harden=True).network
    loose = train(network(name), digits, replace(RECIPE, tolerance=0.02), seed=0, harden=True).network
    images, labels = digits.test_images, digits.test_labels
    assert evaluate(exact, images, labels) == evaluate(with_relu(exact), images, labels)
    assert evaluate(loose, images, labels) != evaluate(with_relu(loose), images, labels)


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
        patch.setitem(idx.SETS, "fashion-mnist", as_published("fashion-mnist"))
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
    monkeypatch.setattr(hardening_runs, "evaluate", lambda *_: Metric(accuracy=next(falling), loss=0.0))
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
    assert tables[0].lines[0][2] == "–"
    accuracy = study.outcomes[1].accuracy("replaced")
    assert accuracy is not None
    assert tables[0].lines[1][3] == accuracy.text(2)
    text = hardening_markdown(study.record)
    assert f"| {' | '.join(tables[1].lines[2])} |" in text
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
    monkeypatch.setattr(hardening_study.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hardening_study.MissingToolError, match="pip install"):
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
    from softknee.cli import main

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
    for line in hardening_tables(record)[0].lines:
        assert all(cell in out for cell in line)
    assert (tmp_path / "out" / "hardening.md").read_text(encoding="utf-8") == hardening_markdown(record)
    assert (tmp_path / "out" / "digits-srelu-seed1").is_dir()
