"""Curves for TensorBoard, read back from its own files by its own reader."""

import sys
from pathlib import Path

import pytest

from softknee.errors import MissingToolError
from softknee.files import WriteError
from softknee.lab.studies.recipe import Data, Model, Seeds, Training
from softknee.lab.studies.tensorboard import TensorBoardLog
from softknee.lab.studies.trial import Chosen, Trial
from softknee.lab.studies.trials import Outcome

reader = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
)


def outcome(label: str = "smelu beta=0.5") -> Outcome:
    """Three epochs of two seeds, the second of which diverged in the last."""
    trial = Trial(
        kind="train",
        activations=(Chosen(name="smelu", label=label, values={"beta": 0.5}, learn=True),),
        data=Data(set="digits"),
        fingerprint="0" * 64,
        model=Model(),
        training=Training(epochs=3),
        seeds=Seeds(count=2, first=5),
    )
    return Outcome(
        trial=trial,
        seconds=1.5,
        diverged=(None, 3),
        selected=(2, None),
        test={"accuracy": (0.875, None)},
        validation={"accuracy": (0.75, None), "log_loss": (0.5, None)},
        train={"log_loss": (0.25, None)},
        curves={
            "train_loss": ((2.0, 2.5), (1.5, 8.0), (1.25, None)),
            "validation_accuracy": ((0.25, 0.125), (0.75, 0.0625), (0.5, None)),
        },
        parameters={
            "1.beta": {"start": 0.5, "end": (0.375, None), "curve": ((0.5, 0.5), (0.4375, 0.5), (0.375, None))}
        },
    )


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    result = reader.EventAccumulator(str(folder)).Reload()
    return {tag: [(scalar.step, scalar.value) for scalar in result.Scalars(tag)] for tag in result.Tags()["scalars"]}


def test_every_number_of_every_seed_is_there_and_nothing_else(tmp_path: Path):
    given = outcome()
    place = TensorBoardLog(tmp_path).outcome(given)
    assert place == tmp_path / f"smelu beta=0.5 {given.trial.key}"
    assert sorted(path.name for path in place.iterdir()) == ["seed 5", "seed 6"]
    assert scalars(place / "seed 5") == {
        "loss/train": [(1, 2.0), (2, 1.5), (3, 1.25)],
        "accuracy/validation": [(1, 0.25), (2, 0.75), (3, 0.5)],
        "parameters/1.beta": [(0, 0.5), (1, 0.5), (2, 0.4375), (3, 0.375)],
        "test/accuracy": [(2, 0.875)],  # of the epoch that was selected
        "validation/accuracy": [(2, 0.75)],
        "validation/log_loss": [(2, 0.5)],
        "train/log_loss": [(2, 0.25)],
    }
    assert scalars(place / "seed 6") == {
        "loss/train": [(1, 2.5), (2, 8.0)],
        "accuracy/validation": [(1, 0.125), (2, 0.0625)],
        "parameters/1.beta": [(0, 0.5), (1, 0.5), (2, 0.5)],
    }


def test_a_trial_is_written_once(tmp_path: Path):
    log = TensorBoardLog(tmp_path)
    place = log.outcome(outcome())
    before = sorted(path.name for path in place.rglob("*"))
    assert TensorBoardLog(tmp_path).outcome(outcome()) == place
    assert sorted(value.name for value in place.rglob("*")) == before
    assert [item.name for item in tmp_path.iterdir()] == [place.name]  # nothing half-written stays


def test_a_label_is_made_a_name(tmp_path: Path):
    place = TensorBoardLog(tmp_path).outcome(outcome("../../a/b: <c>"))
    assert place.parent == tmp_path
    assert place.name.startswith("_.._a_b_ _c_ ")


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="smelu"):
        TensorBoardLog(tmp_path / "file").outcome(outcome())


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in [module for module in sys.modules if module.startswith(("torch.utils.tensorboard", "tensorboard"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingToolError, match=r"pip install 'softknee\[tensorboard\]'"):
        TensorBoardLog(tmp_path)
