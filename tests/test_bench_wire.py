"""The benchmark of the wire: what its record holds and prints; two processes train as one does."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from typer.testing import CliRunner

from softknee.app.commands import app
from softknee.errors import ParameterError
from softknee.lab.bench.wire import FORMS, PAIRS, Settings, _crossover
from softknee.measure import Record

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="This torch was built without gloo."
)


def test_the_command_trains_codes_times_and_writes(tmp_path: Path):
    path = tmp_path / "wire.json"
    options = ["--device=cpu", "--rates=0.1", "--epochs=1", "--elements=100000", "--repeats=3", "--threads=1"]
    result = CliRunner().invoke(app, ["bench", "wire", *options, "--json", str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    for words in ("over two processes", "less than bf16", "packed or bfloat16", "million per second"):
        assert words in result.stdout
    record = Record.read(path)
    training, *others = record.rows
    assert training["accuracy_one_process"] == training["accuracy_two_processes"]
    assert training["largest_difference_of_losses"] < 1e-5
    sent = training["sent"]
    assert sent["activations"] == 719 * 16 * 64
    assert 4 < sent["less_than_float32"] < 32
    assert sent["gradients"] > sent["float32"]
    assert training["bits"]["entropy"] < training["bits"]["rans"] < 1.05 * training["bits"]["entropy"]
    assert training["bits"]["packed"] == pytest.approx(16 / 3, rel=1e-3)
    speeds = {row["form"]: row for row in others if row["part"] == "speed"}
    assert tuple(speeds) == FORMS
    assert all(row["encode"].value > 0 and row["decode_speed"].value > 0 for row in speeds.values())
    assert [(row["shorter"], row["longer"]) for row in others if row["part"] == "crossover"] == list(PAIRS)
    assert json.loads(path.read_text())["kind"] == "bench wire"


def test_the_crossover_is_where_both_forms_take_the_same_time():
    size = {"rans": 400_000, "packed": 666_667}
    times = {"rans": [0.5, 0.6, 0.7], "packed": [0.1, 0.1, 0.1]}
    result = _crossover(0.0, "rans", "packed", size, times)["below"]
    assert result.unit == "Mbit/s"
    assert result.low < result.value < result.high
    for bandwidth, coding in ((result.value, 0.6), (result.high, 0.55), (result.low, 0.65)):
        assert 8e-6 * size["rans"] / bandwidth + coding == pytest.approx(8e-6 * size["packed"] / bandwidth + 0.1)

    def verdict(shorter: str, longer: str, **times: list[float]) -> str:
        return _crossover(0.0, shorter, longer, size, times)["verdict"]

    assert "every link" in verdict("rans", "packed", rans=[0.1], packed=[0.2])
    assert "too close" in verdict("rans", "packed", rans=[0.1, 0.3, 0.1, 0.3], packed=[0.2, 0.2, 0.2, 0.2])
    assert "not shorter" in verdict("packed", "rans", **times)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rates": ()}, "weights of the rate"),
        ({"rates": (-1.0,)}, "none below 0"),
        ({"epochs": 0}, "epochs of at least 1"),
    ],
)
def test_settings_are_checked(changes: dict, says: str):
    with pytest.raises(ParameterError, match=says):
        Settings(device=torch.device("cpu"), **changes)


def test_the_command_refuses_what_is_no_number():
    with pytest.raises(ParameterError, match="--rates takes numbers"):
        CliRunner().invoke(app, ["bench", "wire", "--rates", "a", "--device", "cpu"], catch_exceptions=False)


def test_a_form_that_is_none_is_refused():
    with pytest.raises(
        ParameterError, match=r"no form called 'zip' to measure\. Known are rans, huffman, packed, bfloat16"
    ):
        Settings(device=torch.device("cpu"), forms=("zip",))
