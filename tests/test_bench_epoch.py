"""The benchmark of an epoch: what its record holds, what it prints, what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from softknee.app.commands import app
from softknee.errors import ParameterError
from softknee.lab.bench.epoch import Settings, measure
from softknee.lab.bench.models import Shape, build
from softknee.measure import Record

pytest.importorskip("timm", reason="timm is not installed; the extra 'vision' brings it")

VIT = "timm:vit_tiny_patch16_224"
TINY = {"depth": 1, "embed_dim": 12, "num_heads": 2, "patch_size": 4}
SMALL: dict[str, Any] = {
    "model": VIT,
    "device": torch.device("cpu"),
    "image": 8,
    "config": TINY,
    "precision": "float32",
    "examples": 20,
    "batch": 8,
    "repeats": 2,
}


def test_the_command_times_both_ways_and_writes_the_record(tmp_path: Path):
    path = tmp_path / "epoch.json"
    sizes = [f"--config={key}={value}" for key, value in TINY.items()]
    options = [*sizes, "--device=cpu", "--image=8", "--examples=40", "--batch=8", "--steps=2"]
    swap = ["--swap", "srelu(delta=0.001)", "--counts=1,2", "--epochs=7", "--repeats=3"]
    result = CliRunner().invoke(
        app, ["bench", "epoch", *options, *swap, "--json", str(path)], catch_exceptions=False, env={"COLUMNS": "100"}
    )
    assert result.exit_code == 0
    for words in (
        "srelu(delta=0.001)",
        "7 epochs, s",
        "start, s",
        "ratio",
        "from 2 of 5 steps",
        "The plain loop trains",
    ):
        assert words in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    record = Record.read(path)
    assert record.settings["precision"] == "float32"  # without being asked for: this is a CPU
    assert [(row["way"], row["count"], row["augmentation"]) for row in record.rows] == [
        ("plain loop", 1, "crop-flip"),
        *[("compiled", count, name) for name in ("crop-flip", "full") for count in (1, 2)],
    ]
    plain, *others = record.rows
    for row in record.rows:
        assert "not_run" not in row
        assert row["step"].unit == "ms"
        assert row["step"].repeats == 3
        assert 0 < row["start"] < row["first_epoch"]
        # Seven epochs of five steps, from milliseconds to seconds.
        assert row["run"].value == pytest.approx(7 * 5 * row["step"].value / 1e3)
    for row in others:
        assert row["ratio"] == pytest.approx(row["count"] * plain["step"].value / row["step"].value)
    assert "ratio" not in plain
    assert any("extrapolated from stretches of 2 steps" in note for note in record.notes)
    assert record.settings["config"] == {"num_classes": 10, **TINY}
    assert "randaugment=(9.0, 0.5), mixup=0.8, cutmix=1.0, erasing=0.25" in record.settings["augmentations"]["full"]


def test_a_whole_epoch_has_its_last_smaller_batch_and_no_plain_loop_where_it_is_not_wanted():
    settings = Settings(**SMALL, counts=(2,), augment=("crop-flip",), plain=False)
    assert settings.timed == settings.in_epoch == 3
    record = measure(settings, command="test")
    (row,) = record.rows
    assert (row["way"], row["count"]) == ("compiled", 2)
    assert "ratio" not in row
    assert record.baseline is None
    assert not any("extrapolated" in note for note in record.notes)


def test_what_cannot_be_run_is_said_in_its_row(monkeypatch: pytest.MonkeyPatch):
    def too_large(*args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("Tried to allocate 1 TiB.")

    monkeypatch.setattr("softknee.lab.bench.epoch.Replicas", too_large)
    record = measure(Settings(**SMALL, counts=(1, 9), augment=("crop-flip",)), command="test")
    plain, *others = record.rows
    assert plain["step"].value > 0
    assert [(row["count"], row["not_run"]) for row in others] == [(count, "It ran out of memory.") for count in (1, 9)]


def test_a_swap_that_cannot_be_done_is_refused():
    with pytest.raises(ParameterError, match="delta"):
        measure(Settings(**SMALL, swap="srelu(delta=-1)"), command="test")


def test_a_vit_has_small_patches_and_ten_classes_unless_something_else_is_said():
    here = {"device": torch.device("cpu")}
    assert Settings(model=VIT, **here).built_with == {"num_classes": 10, "patch_size": 4}
    assert Settings(model=VIT, **here, config={"depth": 2}).built_with == {"num_classes": 10, "depth": 2}
    assert Settings(model="timm:resnet18", **here).built_with == {"num_classes": 10}
    assert Settings(model="transformers:vit", **here).built_with == {"num_labels": 10, "patch_size": 4}
    assert Settings(model=VIT, **here).timed == 196


def test_models_are_built_from_a_seed():
    first, again, other = (build(VIT, Shape(batch=1, image=8), TINY, seed=seed)[0] for seed in (0, 0, 1))
    item, two, three = (model.get_parameter("patch_embed.proj.weight") for model in (first, again, other))
    assert torch.equal(item, two)
    assert not torch.equal(item, three)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"counts": ()}, "numbers of models"),
        ({"counts": (2, 2)}, "numbers of models"),
        ({"augment": ("ful",)}, "Did you mean 'full'"),
        ({"augment": (), "plain": False}, "Nothing is left to measure"),
        ({"steps": 4}, "steps=4 is too many: an epoch of 20 examples in batches of 8 has 3"),
        ({"repeats": 0}, "repeats of at least 1"),
        ({"precision": "float16"}, "precision must be 'float32' or 'bfloat16'"),
        ({"model": "transformers:gpt2"}, "takes no images"),
    ],
)
def test_settings_are_checked(changes: dict, says: str):
    with pytest.raises(ParameterError, match=says):
        Settings(**(SMALL | changes))


def test_the_command_refuses_what_is_no_number():
    with pytest.raises(ParameterError, match="--counts takes whole numbers"):
        CliRunner().invoke(app, ["bench", "epoch", "--counts", "a,2", "--device", "cpu"], catch_exceptions=False)
