"""The README and the tour tell the truth: code runs, numbers are those of the records, and every next step is near."""

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import timm
import torch
from docsite.blocks import blocks_of, check_command, commands_of, run_blocks_of
from papers.ledger import find_statements
from papers.runs import Runs
from papers.squaf.findings import ALONE, RATE, VGG
from papers.statement import judge
from pictures import FRAMES, IMAGES, perplexities, ship, sources
from PIL import Image

import softknee as sk
from readme_table import DOCS, PARTS, RECORDS, ROOT, made, marked
from softknee.measure import Record
from softknee.registry import names

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
START = DOCS / "start.md"
(THREE_LINES,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def lines_of(code: str) -> list[str]:
    return [line for line in code.splitlines() if line and not line.startswith("import")]


def said(page: str) -> str:
    return " ".join((DOCS / page).read_text(encoding="utf-8").split())


def record(name: str) -> Record:
    return Record.from_json((RECORDS / name).read_text(encoding="utf-8"))


# -- code -------------------------------------------------------------------------------------------------


def test_three_lines_take_a_timm_model_to_a_relu() -> None:
    into, loop, out = lines_of(THREE_LINES)
    model, x, y = timm.create_model("convnext_atto"), torch.randn(4, 3, 32, 32), torch.arange(4)
    names: dict[str, Any] = {"sk": sk, "model": model, "epochs": 5}
    exec(into, names)
    opt = torch.optim.AdamW(sk.param_groups(model, lr=1e-3, weight_decay=0.05))
    exec(loop, names)
    for epoch in range(1, names["epochs"] + 1):
        names["hardener"].step(epoch)
        opt.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
    hard = model.eval()(x).detach()
    exec(out, names)
    stock = timm.create_model("convnext_atto", act_layer=torch.nn.ReLU).eval()
    stock.load_state_dict(model.state_dict())
    assert torch.equal(stock(x), model(x))
    assert float((model(x).detach() - hard).abs().max()) < 1e-3
    assert sum(isinstance(layer, torch.nn.ReLU) for layer in model.modules()) == 12


def test_the_first_sentence_has_the_numbers_of_the_record() -> None:
    rows = perplexities()
    hard, gelu = rows["lambda-GELU, hardened"], rows["GELU"]
    first = " ".join(TEXT.partition("```")[0].split())
    assert f"{hard['hardened']:.2f} before and {hard['replaced']:.2f} after" in first
    assert f"goes from {gelu['free']:.2f} to {gelu['replaced']:.2f}" in first


def test_pictures_are_of_the_present_code() -> None:
    """After a change of the workbench or of the record: `python tools/pictures.py`."""
    assert (IMAGES / "ship.svg").read_text(encoding="utf-8") == ship()
    assert json.loads((IMAGES / "sources.json").read_text(encoding="utf-8")) == sources()
    for scheme in ("light", "dark"):
        with Image.open(IMAGES / f"bend-{scheme}.webp") as moving:
            assert moving.n_frames == FRAMES


# torch's exporter warns of its own internals.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning:torch")
def test_the_five_minutes_run_and_come_to_what_they_say() -> None:
    torch.manual_seed(0)
    function, module, swap, kan, proof, trained, mine, relu, export = run_blocks_of(START)
    assert "Claims(smoothness=2, monotone=True, lipschitz=1" in function
    assert "delta -> 0.0 makes it relu" in function
    assert "SmeLU(beta=0.25 (learned), per='channel', size=64, dim=1)" in module
    assert "35 parameters" in module
    assert "2 changed, 0 left" in swap
    assert re.fullmatch(r"tensor\(\[\[\d\.\d+, \d\.\d+\]\], dtype=torch.float64\)\s*", kan)
    assert "certificate of hardtanh_triweight" in proof
    assert "Pointwise('softlog', beta=2)" in mine
    assert "softlog" not in names()  # the page leaves nothing behind for the next one
    assert "2 activations replaced" in relu
    assert export.startswith("True\n")
    assert set(re.findall(r"'(\w+)'", export)) == {"Gemm", "Relu"}
    loss, always_zero = map(float, re.findall(r"\d\.\d{4}", trained)[:2])
    assert loss < 0.25 * always_zero
    assert float(re.findall(r"delta=(\S+) \(learned\)", trained)[0]) != 1.0


def test_the_way_from_formula_to_trained_module_takes_less_than_ten_lines() -> None:
    (block,) = [item.code for item in blocks_of(START) if "mollify" in item.code and item.kind == "python"]
    assert "adam.step()" in block
    assert len(lines_of(block)) < 10


def test_every_command_exists() -> None:
    results = [*commands_of(README), *(commands_of(START))]
    assert len(results) > 12
    for line, place in results:
        check_command(line, place)
    assert "&& softknee workbench\n" in TEXT
    made_by = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^    make (\w+)|`make (\w+)`", TEXT, flags=re.M))
    assert {item or two for item, two in targets} == {"study", "workbench", "test", "docs"}
    assert all(re.search(rf"^{value or two}:", made_by, flags=re.M) for value, two in targets)


# -- numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", PARTS)
def test_tables_and_evidence_are_made_from_the_records(part: str) -> None:
    """After a change of records: `python tests/readme_table.py --write`."""
    assert marked(part)[1] == made(part)


def test_what_soft_quantisation_costs_is_what_the_records_say() -> None:
    """Step times and peak memory of ViT-Tiny, and the bits between two processes."""
    text, folder = said("squaf.md"), ROOT / "papers/squaf/records"
    for path, form in (
        (folder / "h200-model-vit-table-10.json", "takes {:.3f} times as long as with GELU in float32"),
        (folder / "h200-model-vit-squaf-bf16.json", "and {:.2f} times in bf16"),
        (RECORDS / "h200-model-vit-squaf-64.json", "takes the time, {:.2f} times"),
        (RECORDS / "h200-model-vit-squaf-bf16-slow-host.json", "the step in bf16 took {:.2f} times"),
    ):
        first, *others = Record.from_json(path.read_text(encoding="utf-8")).rows
        soft = next(row for row in others if row["variant"] in ("after", "squaf(k=16, q=0.25, z=gelu, learn=all)"))
        assert form.format(soft["step"].value / first["step"].value) in text
        assert soft["peak"] <= 1.001 * first["peak"]
    free, priced, *_ = [row for row in record("cpu-wire.json").rows if row["part"] == "training"]
    bits = [row["sent"]["bits_per_activation"] for row in (free, priced)]
    less = 100 * (free["accuracy_two_processes"] - priced["accuracy_two_processes"])
    assert (
        f"take {bits[0]:.1f} bits in place of 32, and {bits[1]:.1f} with a rate penalty and {less:.1f} points" in text
    )


def test_what_soft_quantisation_gives_is_what_the_records_say() -> None:
    """Bits and accuracy of VGG-8, and what its first function became."""
    text, runs = said("squaf.md"), Runs.committed()
    relu, gelu, soft, free, *_, last = runs.benchmark(RATE).rows
    bits, right = [row["bits"]["huffman"].value for row in (free, last)], last["accuracy"]
    assert f"takes {bits[0]:.2f} bits an activation without a price on them and {bits[1]:.2f} at the paper's" in text
    assert f"{right['sampled'].value:.2f} % there, {right['soft'].value:.2f} % once switched to SQUAF and" in text
    assert f"and {right['step'].value:.2f} % to SQUAF-S, the former with 32 bits again. ReLU has" in text
    assert f"ReLU has {relu['accuracy']['soft'].value:.2f} %," in text
    assert f"SQUAF {soft['accuracy']['soft'].value:.2f} %." in text
    gained = [soft["accuracy"]["soft"].value - row["accuracy"]["soft"].value for row in (relu, gelu)]
    assert f"SQUAF is {gained[0]:.2f} points above ReLU and {gained[1]:.2f} above GELU" in text
    ranges = [max(item) - min(item) for row in runs.benchmark(RATE).rows for item in row.get("draws_by_seed", ())]
    assert f"of 8 draws of one network the best is {fmean(ranges):.2f} points above the worst, in the mean" in text
    (dent,) = judge(
        [statement for statement in find_statements(["squaf"]) if statement.id == "squaf.a_dent_near_the_origin"], runs
    )
    means = ([f"{low:.2f}", f"{left:.2f}"] for low, left in dent.evidence.numbers.values())
    lowest, left = zip(*means, strict=True)
    assert f"down to {min(lowest)} to {max(lowest)} (GELU's" in text
    assert f"on its left it rises to {min(left)} to {max(left)}." in text


def test_what_soft_quantisation_gives_networks_is_what_the_records_say() -> None:
    text, runs = said("squaf.md"), Runs.committed()
    rows = {row["activation"]: row for row in runs.benchmark(ALONE).rows if "accuracy" in row}
    right = {name: row["accuracy"].value for name, row in rows.items()}
    first, second, *_ = sorted(right, key=lambda name: -right[name])
    assert (first, second, len(right)) == ("SQUAF", "DiTAC", 10)
    above = [f"{right['SQUAF'] - right[name]:.2f}" for name in ("DiTAC", "ReLU", "GELU")]
    assert f"it has {right['SQUAF']:.2f} %, the most of the ten activations that converge: {above[0]} points" in text
    assert f"too, {above[1]} above ReLU and {above[2]} above GELU" in text
    (leads,) = judge(
        [statement for statement in find_statements(["squaf"]) if statement.id == "squaf.best_in_a_small_network"], runs
    )
    assert leads.verdict == "supported"
    assert "show it for all nine" in text
    teacher, *students = runs.benchmark(VGG).rows
    best, least = max(students, key=lambda row: row["accuracy"].value), min(students, key=lambda row: row["gap"].value)
    assert (best["activation"], least["activation"], len(students)) == ("SQUAF", "SiLU", 6)
    assert f"VGG-8 with SQUAF has {best['accuracy'].value:.2f} %, the most of the six" in text
    assert f"below its teacher's {teacher['accuracy'].value:.2f} %" in text
    assert f"{best['gap'].value:.2f} points, is the smallest of those that the paper compares" in text
    relu = next(row for row in students if row["activation"] == "ReLU")["gap"].value
    assert f"(SiLU's, {least['gap'].value:.2f}, and ReLU's, {relu:.2f}, are smaller)" in text
    others = [row["gap"].value for row in students if row["activation"] not in ("SiLU", "ReLU", "SQUAF")]
    assert relu < best["gap"].value < min(others)


def test_what_soft_quantisation_gives_a_transformer_is_what_the_records_say() -> None:
    text, runs = said("squaf.md"), Runs.committed()
    short = runs.study("squaf-table-6-vit-short")
    three = [f"{100 * short.mean(label, 'accuracy'):.2f} %" for label in ("squaf first", "gelu", "relu")]
    assert f"with the first SQUAF trained has {three[0]}, with GELU {three[1]}, with ReLU {three[2]}." in text
    vit = runs.study("mollification-table-1")
    tested = [100 * vit.mean(label, "accuracy") for label in ("squaf", "lambda_gelu")]
    fitted = [f"{100 * fmean(vit.outcomes[label].train['accuracy']):.2f} %" for label in ("squaf", "lambda_gelu")]
    assert f"With all twelve trained it has {tested[0]:.2f} %: it gets {fitted[0]} of" in text
    assert f"as λ-GELU does, which has {tested[1]:.2f} %." in text
    assert fitted[0] == fitted[1]


def test_what_a_compiled_training_gains_is_what_the_record_says() -> None:
    three = record("h200-epoch-vit.json").rows[2]["run"].value
    at_once = f" [{three:.0f} s](../benchmarks/records/h200-epoch-vit.json) "
    for model, name, last in (("ViT-Tiny, patches of 4", "vit-full", at_once), ("ConvNeXt-Tiny", "convnext", " ")):
        each = (row["run"].value for row in record(f"h200-epoch-{name}.json").rows)
        row = f"| {model} | {' | '.join(f'{item:.0f} s' for item in each)} |{last}|"
        assert row in said("speed.md")


def test_what_replicas_gain_is_what_the_records_say() -> None:
    text = said("studies.md")
    for name, form in (
        ("h200-replicas-tf32.json", "{:.2f} ms a step with TF32 against {:.1f} ms for 12 models in a row"),
        ("h200-replicas.json", "{:.2f} against {:.1f} ms without"),
        ("cpu-replicas.json", "two CPU cores: {:.1f} against {:.1f} ms"),
    ):
        (row,) = [item for item in record(name).rows if item["count"] == 12]
        assert form.format(row["step"].value, row["in_a_row"].value) in text


def test_the_tours_comment_on_the_knob_is_true() -> None:
    act = sk.get("srelu")
    assert (act.knob, act.toward, act.limit) == ("delta", 0.0, "relu")


def test_every_record_that_is_named_is_there_and_readable() -> None:
    pages = [TEXT, *(page.read_text(encoding="utf-8") for page in (*DOCS.glob("*.md"), *DOCS.glob("guides/*.md")))]
    named = {name for page in pages for name in re.findall(r"\((?:\.\./)*benchmarks/records/([\w.-]+\.json)\)", page)}
    there = {path.name for path in RECORDS.glob("*.json")}
    assert named == there
    for name in named:
        assert record(name).rows


# -- the way on -------------------------------------------------------------------------------------------


def links_of(page: Path) -> list[Path]:
    """Where the links and pictures of a page lead, as GitHub follows them; code is left out."""
    text = re.sub(r"^```.*?^```$|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    places = re.findall(r"\]\(([^()\s]+)\)", text) + re.findall(r'(?:href|src|srcset)="([^"]+)"', text)
    return [
        (page.parent / place.partition("#")[0]).resolve() for place in places if "://" not in place and place[0] != "#"
    ]


def test_it_is_short_and_shows_the_workbench_and_what_shipping_costs() -> None:
    assert len(TEXT.splitlines()) <= 90
    shown = {item.name for item in links_of(README) if item.parent == IMAGES}
    assert shown == {"bend-light.webp", "bend-dark.webp", "ship.svg"}


def test_every_page_is_at_most_two_clicks_away_and_no_link_of_the_first_is_dead() -> None:
    first = set(links_of(README))
    for page in (README, *(DOCS / f"{entry}.md" for entry in ("start", "speed", "architecture"))):
        assert [str(one) for one in links_of(page) if not one.exists()] == []
    near = first | {two for item in first if item.suffix == ".md" for two in links_of(item)}
    # docs/index.md is the front of the built site, as the README is that of the repository.
    pages = {path.resolve() for path in DOCS.rglob("*.md")} - {DOCS / "index.md"}
    assert {str(value.relative_to(DOCS)) for value in pages - near} == set()


def test_every_folder_of_the_map_exists_and_every_room_is_on_it() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w/]+)` \|", text, flags=re.MULTILINE)
    assert [item for item in listed if not (ROOT / item).is_dir()] == []
    rooms = {f"src/softknee/{path.parent.name}" for path in (ROOT / "src" / "softknee").glob("*/__init__.py")}
    assert rooms <= set(listed)
