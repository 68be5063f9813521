"""Churn between two models: by the definitions, against SciPy, and on networks that were really trained."""

import json
import math

import numpy as np
import pytest
import scipy.stats
import torch
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

import softknee as sk
from softknee.app.commands import app
from softknee.errors import DataError, InputError, ParameterError, SoftkneeError
from softknee.lab import networks
from softknee.lab.checkpoint import CheckpointError, save_checkpoint
from softknee.lab.compare import churn, compare, gain_interval, mcnemar, over_examples, wilson
from softknee.lab.data.images import load_split
from softknee.lab.studies.recipe import Data
from softknee.measure import Record, prediction_difference

SIZES = {"widths": [64, 16, 10], "activation": "smelu"}
MODULE = """
import torch
from softknee.lab.networks import mlp

def build(classes, input_shape, hidden=16):
    return mlp([input_shape[0], hidden, classes], activation="smelu")

def nothing():
    return 3
"""

# -- intervals and the test -------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "examples"), [(0, 7), (7, 7), (1, 40), (333, 899), (50_000, 100_000)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_ends_of_wilsons_interval_are_where_the_score_test_turns(count: int, examples: int, level: float):
    z = scipy.stats.norm.ppf((1 + level) / 2)
    for end in wilson(count, examples, level=level):
        away = abs(count / examples - end)
        assert away == pytest.approx(z * (end * (1 - end) / examples) ** 0.5, abs=1e-9)


@pytest.mark.parametrize("pair", [(0, 0), (0, 5), (5, 0), (3, 4), (12, 30), (4, 4), (600, 700)])
def test_mcnemar_sums_the_tails_of_a_fair_coin(pair: tuple[int, int]):
    tail = sum(math.comb(sum(pair), k) for k in range(min(pair) + 1))
    assert mcnemar(*pair) == pytest.approx(min(1.0, 2 * tail / 2 ** sum(pair)), rel=1e-9)


def test_the_interval_of_the_gain_holds_the_truth_as_often_as_it_says():
    """For pairs that are spoiled with probability 0.04 and mended with 0.07, in 100 examples."""
    draws = np.random.default_rng(0).multinomial(100, [0.04, 0.07, 0.89], size=4000)
    held = [low <= 0.03 <= high for low, high in (gain_interval(a, b, 100) for a, b, _ in draws)]
    assert 0.935 < np.mean(held) < 0.985
    assert gain_interval(0, 0, 100)[0] < 0 < gain_interval(0, 0, 100)[1]


@pytest.mark.parametrize("count", [2, 30, 1500])
def test_a_mean_over_examples_has_the_t_interval(count: int):
    each = torch.rand(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 2 + 0.25
    actual = over_examples(each)
    spread = float(each.std()) / count**0.5
    expected = scipy.stats.t.interval(0.95, count - 1, loc=float(each.mean()), scale=spread)
    np.testing.assert_allclose(actual.interval, np.clip(expected, 0, 1), rtol=2e-4)


# -- churn ------------------------------------------------------------------------------------------------


def drawn(*shape: int, seed: int) -> Tensor:
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * scores).softmax(-1)


def test_churn_is_what_a_loop_counts():
    old, new = drawn(200, 4, seed=0), drawn(200, 4, seed=1)
    new[:120] = 0.7 * old[:120] + 0.3 * new[:120]
    labels = old.argmax(1) * (torch.arange(200) % 3 > 0)
    result = churn(old, new, labels)
    changed = spoiled = mended = 0
    for a, b, label in zip(old.tolist(), new.tolist(), labels.tolist(), strict=True):
        was, now = a.index(max(a)), b.index(max(b))
        changed += was != now
        spoiled += was == label != now
        mended += was != label == now
    assert (result.changed.value, result.spoiled, result.mended) == (changed / 200, spoiled, mended)
    assert min(spoiled, mended) > 3
    assert result.mcnemar == mcnemar(spoiled, mended)
    assert result.gain.value == pytest.approx(result.new_accuracy.value - result.old_accuracy.value)
    both = prediction_difference(torch.stack([old, new]), labels)
    assert result.delta_1.value == pytest.approx(both.delta_1.value, rel=1e-12)
    assert result.changed.value == pytest.approx(both.hamming.value)
    half = (result.delta_1.interval[1] - result.delta_1.interval[0]) / 2
    assert half == pytest.approx(scipy.stats.t.ppf(0.975, 199) * both.standard_error["delta_1"], rel=1e-6)
    for rate in (result.changed, result.gain, result.delta_1, result.old_accuracy):
        assert rate.interval[0] < rate.value < rate.interval[1]


def test_a_model_does_not_differ_from_itself():
    same = drawn(50, 3, seed=2)
    result = churn(same, same, torch.zeros(50, dtype=torch.int64))
    assert (result.changed.value, result.delta_1.value, result.gain.value, result.mcnemar) == (0, 0, 0, 1.0)
    assert result.changed.interval == (0.0, pytest.approx(0.0713, abs=1e-4))
    several = torch.stack([same, drawn(50, 3, seed=5)])
    again = churn(several, several, torch.zeros(50, dtype=torch.int64))
    assert (again.changed, again.gain) == (result.changed, result.gain)


def test_several_pairs_are_means_of_each_and_a_diverged_one_is_left_out():
    old, new = drawn(3, 60, 3, seed=3), drawn(3, 60, 3, seed=4)
    labels = old[0].argmax(1)
    each = [churn(a, b, labels) for a, b in zip(old, new, strict=True)]
    result = churn(old, new, labels)
    for name in ("changed", "delta_1", "gain", "old_accuracy"):
        mean = sum(getattr(item, name).value for item in each) / 3
        assert getattr(result, name).value == pytest.approx(mean)
    assert (result.pairs, result.left_out, result.mcnemar) == (3, 0, None)
    new[1] = float("nan")
    left = churn(old, new, labels)
    assert (left.pairs, left.left_out) == (2, 1)
    assert left.changed.value == pytest.approx((each[0].changed.value + each[2].changed.value) / 2)
    with pytest.raises(InputError, match="every pair a model had diverged"):
        churn(old[1], new[1], labels)
    with pytest.raises(InputError, match=r"\(3, 60, 3\) and \(1, 60, 3\)"):
        churn(old, new[0], labels)


# -- models that were trained -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory):
    """A folder with two checkpoints, their weights as files, and their predictions on the test digits."""
    folder = tmp_path_factory.mktemp("trained")
    split = load_split("digits", flat=True)
    replicas = sk.train.Replicas(lambda seed: networks.mlp(**SIZES, seed=seed), count=2)
    replicas.fit(split.train_images, split.train_labels, epochs=4, batch=32, lr=0.1, momentum=0.9)
    for index, name in enumerate(("old", "new")):
        model = replicas.model(index)
        save_checkpoint(folder / name, model, builder="mlp", arguments=SIZES, task={"data": "digits"})
        save_file(
            {key: value.detach().clone() for key, value in model.state_dict().items()}, folder / f"{name}.safetensors"
        )
    save_file({key: item.contiguous() for key, item in replicas.weights().items()}, folder / "both.safetensors")
    (folder / "own_models.py").write_text(MODULE)
    probabilities = replicas.predict(split.test_images, probabilities=True)
    return folder, probabilities, split


def test_two_checkpoints_are_compared_on_their_data(trained):
    folder, probabilities, split = trained
    actual = compare(folder / "old", folder / "new")
    expected = churn(probabilities[0], probabilities[1], split.test_labels)
    assert actual.changed == expected.changed
    assert (actual.spoiled, actual.mended, actual.examples) == (expected.spoiled, expected.mended, 899)
    assert actual.delta_1.value == pytest.approx(expected.delta_1.value, rel=1e-4)
    assert actual.old_accuracy.value == sk.measure.accuracy(probabilities[0], split.test_labels).value > 0.85
    assert 0.01 < actual.changed.value < 0.3
    assert (actual.old, actual.new, actual.data) == ("old", "new", "digits, test part")
    assert compare(folder / "old", folder / "old", data="digits", part="all").examples == 1797


def test_weights_and_predictions_give_what_checkpoints_give(trained, monkeypatch: pytest.MonkeyPatch, tmp_path):
    folder, probabilities, split = trained
    monkeypatch.chdir(folder)
    expected = compare("old", "new")
    digits = Data(set="digits", flat=True)
    actual = compare("old.safetensors", "new.safetensors", data=digits, model="own_models:build")
    assert (actual.changed, actual.gain, actual.mcnemar) == (expected.changed, expected.gain, expected.mcnemar)
    # Both at once, as a study keeps them; and a checkpoint beside a file of weights.
    twice = compare("both.safetensors", "both.safetensors", data=digits, model=["own_models:build"])
    assert (twice.pairs, twice.changed.value) == (2, 0.0)
    mixed = compare("old", "new.safetensors", data=digits, model="own_models:build")
    assert mixed.changed == expected.changed

    np.savez(tmp_path / "old.npz", probabilities=probabilities[0].numpy(), labels=split.test_labels.numpy())
    save_file({"logits": probabilities[1].log()}, tmp_path / "new.safetensors")
    files = compare(tmp_path / "old.npz", tmp_path / "new.safetensors")
    assert (files.changed, files.gain) == (expected.changed, expected.gain)
    assert files.delta_1.value == pytest.approx(expected.delta_1.value, rel=1e-4)


def test_the_command_prints_a_table_and_writes_a_record(trained, tmp_path):
    folder, probabilities, split = trained
    expected = churn(probabilities[0], probabilities[1], split.test_labels)
    record = tmp_path / "churn.json"
    ran = CliRunner().invoke(app, ["compare", str(folder / "old"), str(folder / "new"), "--json", str(record)])
    assert ran.exit_code == 0, ran.output
    assert f"{100 * expected.changed.value:.2f} %" in ran.output
    assert f"{expected.spoiled} of 899" in ran.output
    assert "From old to new, on digits, test part" in ran.output
    actual = Record.read(record)
    assert actual.kind == "compare"
    values = {row["measure"]: row for row in actual.rows}
    assert values["changed"]["value"].value == expected.changed.value
    assert values["changed"]["value"].low == expected.changed.interval[0]
    assert values["changes"]["mended"] == expected.mended
    assert str(folder) not in json.dumps(actual.settings)


def test_a_file_of_ones_own_is_predicted(trained, monkeypatch: pytest.MonkeyPatch, tmp_path):
    """Digits as a table of numbers: its inputs as they are, all of them."""
    folder, probabilities, split = trained
    np.savez(tmp_path / "mine.npz", x=split.test_images.numpy(), label=split.test_labels.numpy())
    monkeypatch.chdir(folder)
    given = ["old.safetensors", "new.safetensors", "--data", str(tmp_path / "mine.npz"), "--target", "label", "--raw"]
    given += ["--part", "all"]
    function = ["--model", "own_models:build", "--argument", "hidden=16", "--markdown"]
    ran = CliRunner().invoke(app, ["compare", *given, *function])
    assert ran.exit_code == 0, ran.output
    expected = churn(probabilities[0], probabilities[1], split.test_labels)
    assert f"| predicted label changed | {100 * expected.changed.value:.2f} % |" in ran.output
    assert f"| right before, wrong now | {expected.spoiled} of 899 |" in ran.output
    rows = CliRunner().invoke(app, ["compare", *given[:2], "--data", "digits", "--flat", *function])
    assert f"| right before, wrong now | {expected.spoiled} of 899 |" in rows.output


# -- refusals ---------------------------------------------------------------------------------------------


def test_what_cannot_be_compared_is_refused(trained, monkeypatch: pytest.MonkeyPatch, tmp_path):
    folder, probabilities, split = trained
    monkeypatch.chdir(folder)
    torch.save({"a": torch.zeros(1)}, tmp_path / "model.pt")
    np.savez(tmp_path / "wrong.npz", scores=np.zeros((3, 2)))
    np.savez(tmp_path / "silent.npz", probabilities=probabilities[0].numpy())
    labels = split.test_labels.flip(0).numpy()
    np.savez(tmp_path / "other.npz", probabilities=probabilities[0].numpy(), labels=labels)
    np.savez(tmp_path / "objects.npz", probabilities=np.array([{}], dtype=object))
    np.savez(tmp_path / "quantity.npz", x=np.ones((40, 64)), y=np.linspace(0, 1, 40))
    (tmp_path / "broken.safetensors").write_bytes(b"no")
    own = {"data": "digits", "model": "own_models:build"}
    for old, given, error, says in (
        (tmp_path / "model.pt", {}, DataError, r"pickle.*weights_only=True.*'model.safetensors'"),
        (tmp_path / "nowhere", {}, DataError, "There is no checkpoint"),
        (folder / "own_models.py", {}, DataError, "is no checkpoint"),
        (tmp_path / "wrong.npz", {}, DataError, "no array 'probabilities'.*scores"),
        (tmp_path / "objects.npz", {}, DataError, "refused"),
        (tmp_path / "broken.safetensors", own, DataError, "no whole file of safetensors"),
        ("old.safetensors", {}, ParameterError, "--model package.module:function"),
        ("old.safetensors", {**own, "arguments": {"hidden": "a"}}, ParameterError, "the function failed"),
        ("old.safetensors", {**own, "arguments": {"hidden": 8, "input_shape": [64]}}, CheckpointError, "'0.weight'"),
        ("old.safetensors", {**own, "model": "own_models:nothing"}, ParameterError, "not a int"),
        ("old.safetensors", {**own, "model": "own_models:bild"}, SoftkneeError, "Did you mean 'build'"),
        ("old", {"part": "tests"}, ParameterError, "part must be one of"),
        ("old", {"data": "digit"}, ParameterError, "Did you mean 'digits'"),
        ("old", {"data": tmp_path / "quantity.npz"}, DataError, "is a regression"),
        (tmp_path / "other.npz", {}, InputError, "same examples in the same order"),
    ):
        with pytest.raises(error, match=says):
            compare(old, "new", **given)
    with pytest.raises(ParameterError, match="There are no labels"):
        compare(tmp_path / "silent.npz", tmp_path / "silent.npz")
    ran = CliRunner().invoke(app, ["compare", "old", "new", "--argument", "hidden"])
    assert isinstance(ran.exception, ParameterError)
    ran = CliRunner().invoke(app, ["compare", "old", "new", "--raw"])
    assert "--target and --raw are for a file" in str(ran.exception)
