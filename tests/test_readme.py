"""The README tells the truth: its tour runs, and its table is that of the records."""

import re
from pathlib import Path

import pytest

import softknee as sk
from readme_table import RECORDS, ROOT, table
from softknee.measure import Record
from softknee.registry import unregister

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tour_runs_and_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    lines = [line for line in code.splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 20
    try:
        exec(compile(code, "README.md", "exec"), {})
    finally:
        unregister("softlog")
    printed = capsys.readouterr().out
    assert "SmeLU(beta=0.25 (learned), per='channel', size=64, dim=1)" in printed
    assert "softlog" in printed


def test_the_tours_comment_on_the_knob_is_true() -> None:
    act = sk.get("srelu")
    assert (act.knob, act.toward, act.limit) == ("delta", 0.0, "relu")


def test_the_speed_table_is_made_from_the_records() -> None:
    for line in table():
        assert line in TEXT.splitlines()


def test_every_record_that_is_named_is_there_and_readable() -> None:
    named = set(re.findall(r"\(benchmarks/records/([\w.-]+\.json)\)", TEXT))
    there = {path.name for path in RECORDS["bf16"].parent.glob("*.json")}
    assert named == there
    for name in named:
        record = Record.from_json((RECORDS["bf16"].parent / name).read_text(encoding="utf-8"))
        assert record.rows


def test_every_folder_of_the_map_exists() -> None:
    for folder in re.findall(r"^\| `(src/softknee/\w+|tests)`", TEXT, flags=re.MULTILINE):
        assert Path(ROOT / folder).is_dir(), folder
