"""The benchmark of replicas: what its record holds, what it prints, what it refuses."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from softknee.app.commands import app
from softknee.errors import ParameterError
from softknee.lab.bench.replicas import Settings, measure
from softknee.measure import Record

SMALL = {"device": torch.device("cpu"), "counts": (1, 3), "widths": (4, 6, 2), "batch": 4, "steps": 5, "repeats": 2}


def test_the_record_holds_times_for_every_count(tmp_path: Path):
    record = measure(Settings(**SMALL, activation="smelu", threads=1), command="test")
    assert [row["count"] for row in record.rows] == [1, 3]
    for row in record.rows:
        assert "not_run" not in row
        assert row["step"].unit == "ms"
        assert row["step"].value > 0
        assert row["in_a_row"].value == pytest.approx(row["count"] * row["one_eager"].value)
        assert row["gain"].repeats == 2
    assert Record.read(record.write(tmp_path / "replicas.json")) == record


def test_the_command_prints_a_table_and_writes_the_record(tmp_path: Path):
    path = tmp_path / "replicas.json"
    options = ["--counts=1,2", "--widths=4,6,2", "--batch=4", "--device=cpu", "--steps=4", "--repeats=2", "--threads=1"]
    result = CliRunner().invoke(app, ["bench", "replicas", *options, "--json", str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    for words in ("4-6-2, relu, batch 4", "one step of all, ms", "gain", "One model in a plain loop"):
        assert words in result.stdout
    assert json.loads(path.read_text())["settings"]["counts"] == [1, 2]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"counts": ()}, "numbers of replicas"),
        ({"counts": (0, 1)}, "numbers of replicas"),
        ({"counts": (2, 2)}, "numbers of replicas"),
        ({"widths": (4,)}, "two widths"),
        ({"steps": 0}, "steps of at least 1"),
    ],
)
def test_settings_are_checked(changes: dict, says: str):
    with pytest.raises(ParameterError, match=says):
        Settings(**(SMALL | changes))


def test_the_command_refuses_what_is_no_number():
    with pytest.raises(ParameterError, match="--counts takes whole numbers"):
        CliRunner().invoke(app, ["bench", "replicas", "--counts", "a,2", "--device", "cpu"], catch_exceptions=False)


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam", "adamw", "rmsprop"])
def test_captured_steps_are_those_of_the_cpu(optimizer: str):
    from torch import nn

    import softknee as sk

    def make() -> nn.Module:
        # No bias before the norm: its gradient is rounding alone, which adaptive rules blow up to whole steps.
        return nn.Sequential(
            nn.Linear(6, 16, bias=False),
            nn.BatchNorm1d(16),
            sk.nn.SmeLU(learn=True),
            nn.Dropout(0.3),
            nn.Linear(16, 3),
        )

    x = torch.randn(70, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    both = [
        sk.train.Replicas(make, count=3, device=device).fit(
            x, y, epochs=5, batch=20, lr=0.005, optimizer=optimizer, clip=1.0, schedule=sk.train.cosine()
        )
        for device in ("cpu", "cuda")
    ]
    torch.testing.assert_close(both[0].losses, both[1].losses, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(both[0].predict(x), both[1].predict(x).cpu(), rtol=1e-2, atol=1e-3)
