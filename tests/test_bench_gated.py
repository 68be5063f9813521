"""`softknee bench gated`: it times every way, names what is not installed, and prints ratios."""

import json
import sys

import pytest
import torch
from conftest import Command

from softknee.lab.bench import gated
from softknee.measure.record import Record


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    monkeypatch.setitem(sys.modules, "liger_kernel.ops.swiglu", None)
    monkeypatch.setitem(sys.modules, "liger_kernel.ops.geglu", None)


def test_the_command_measures_and_writes(quick, softknee: Command, tmp_path):
    file = tmp_path / "gated.json"
    small = ("--tokens", "8", "--hidden", "16", "--dtype", "f32", "--repeats", "2", "--seconds", "0.01")
    code, printed, _ = softknee("bench", "gated", *small, "--device", "cpu", "--json", str(file))
    assert code == 0
    assert "softknee inplace" in printed
    record = Record.read(file)
    rows = {(row["kind"], row["variant"]): row for row in record.rows}
    assert len(rows) == 2 * 5
    for (_, variant), row in rows.items():
        assert ("not_run" in row) == (variant == "liger")
    lines = gated.tables(record)[0].rows
    assert next(line[2] for line in lines if line[1] == "torch eager").endswith("(1.00x)")
    assert json.loads(file.read_text())["settings"]["hidden"] == 16


def test_refusals(quick, softknee: Command):
    code, _, complaint = softknee("bench", "gated", "--dtype", "f8")
    assert code != 0
    assert "bf16, f16, f32, f64" in complaint
