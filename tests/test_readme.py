"""The README tells the truth: its tour runs, and its table is that of the records."""

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

import softknee as sk
from readme_table import RECORDS, ROOT, table
from softknee.measure import Record
from softknee.registry import unregister

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


TOUR, SURGERY, DESIGN, SOFT = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def lines_of(code: str) -> list[str]:
    return [line for line in code.splitlines() if line and not line.startswith("import")]


def test_the_tour_runs_and_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    code = TOUR
    assert len(lines_of(code)) <= 20
    try:
        exec(compile(code, "README.md", "exec"), {})
    finally:
        unregister("softlog")
    printed = capsys.readouterr().out
    assert "SmeLU(beta=0.25 (learned), per='channel', size=64, dim=1)" in printed
    assert "softlog" in printed


# torch's exporter warns of its own internals.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning:torch")
def test_the_way_from_a_timm_model_to_a_relu_takes_fifteen_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(lines_of(SURGERY)) <= 15
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    after: dict[str, Any] = {}
    exec(compile(SURGERY, "README.md", "exec"), after)
    printed = capsys.readouterr().out
    assert "2 changed, 0 left" in printed
    assert "2 activations replaced" in printed
    assert {type(block.mlp.act) for block in after["stock"].blocks} == {torch.nn.ReLU}
    operators = {node.op_type for node in onnx.load(tmp_path / "vit_relu.onnx").graph.node}
    assert "Relu" in operators
    assert not operators & {"Gelu", "Erf"}


def test_the_way_from_formula_to_trained_module_takes_less_than_ten_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(lines_of(DESIGN)) < 10
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    after: dict[str, Any] = {}
    exec(compile(DESIGN, "README.md", "exec"), after)
    assert (tmp_path / "knee.json").is_file()
    assert "certificate of hardtanh_triweight" in capsys.readouterr().out
    x = after["x"]
    with torch.no_grad():
        assert (after["net"](x).squeeze() - x.prod(1)).square().mean() < 0.25 * x.prod(1).square().mean()
    assert after["net"][1].delta.item() != 1.0


def test_soft_quantisation_runs_as_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    after: dict[str, Any] = {}
    exec(compile(SOFT, "README.md", "exec"), after)
    printed = capsys.readouterr().out
    assert "35" in printed
    assert "bits per activation" in printed
    assert isinstance(after["net"][1], sk.nn.SQUAFS)
    after["penalty"].close()


def test_what_soft_quantisation_costs_is_what_the_records_say() -> None:
    """Step times and peak memory of ViT-Tiny, and the bits between two processes."""
    evidence = ROOT / "docs" / "evidence"
    said = " ".join(TEXT.split())
    for path, form in (
        (evidence / "h200-model-vit-table-10.json", "takes {:.3f} times as long as with GELU in float32"),
        (evidence / "h200-model-vit-squaf-bf16.json", "and {:.2f} times in bf16"),
        (ROOT / "benchmarks" / "records" / "h200-model-vit-squaf-64.json", "takes the time, {:.2f} times"),
    ):
        first, *others = Record.from_json(path.read_text(encoding="utf-8")).rows
        soft = next(row for row in others if row["variant"] in ("after", "squaf(k=16, q=0.25, z=gelu, learn=all)"))
        assert form.format(soft["step"].value / first["step"].value) in said
        assert soft["peak"] <= 1.001 * first["peak"]


def test_the_counts_of_the_ledger_are_those_of_its_page() -> None:
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    (total,) = re.findall(r"^\| all \| (\d+) \| \d+ \| \d+ \| (\d+) \|", page, flags=re.MULTILINE)
    assert f"{total[0]} claims of the papers checked, {total[1]} of them wrong" in " ".join(TEXT.split())


def test_the_tours_comment_on_the_knob_is_true() -> None:
    act = sk.get("srelu")
    assert (act.knob, act.toward, act.limit) == ("delta", 0.0, "relu")


def test_the_speed_table_is_made_from_the_records() -> None:
    for line in table():
        assert line in TEXT.splitlines()


def test_every_record_that_is_named_is_there_and_readable() -> None:
    pages = [TEXT, *(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))]
    named = {name for page in pages for name in re.findall(r"\((?:\.\./)?benchmarks/records/([\w.-]+\.json)\)", page)}
    there = {path.name for path in RECORDS["bf16"].parent.glob("*.json")}
    assert named == there
    for name in named:
        record = Record.from_json((RECORDS["bf16"].parent / name).read_text(encoding="utf-8"))
        assert record.rows


def test_every_folder_of_the_map_exists() -> None:
    for folder in re.findall(r"^\| `(src/softknee/\w+|tests)`", TEXT, flags=re.MULTILINE):
        assert Path(ROOT / folder).is_dir(), folder
