"""The README and the tour tell the truth: code runs, numbers are those of the records, and every next step is near."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from docsite.blocks import blocks_of, check_command, commands_of, run_blocks_of
from papers.ledger import find_statements
from papers.runs import Runs
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
    """After a change of records: `PYTHONPATH=.:tools python tests/readme_table.py --write`."""
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
    modes = {(row["function"], row["variant"]): row for row in record("cpu-squaf-modes.json").rows}
    copies = [modes["squaf", f"softknee {mode}"]["forward"].value for mode in ("eager", "sampled", "step")]
    form = "in float32: {:.2f}, {:.2f} and {:.2f} copies (torch's GELU {:.2f};"
    assert form.format(*copies, modes["gelu", "torch"]["forward"].value) in text
    free, priced, *_ = [row for row in record("cpu-wire.json").rows if row["part"] == "training"]
    bits = [row["sent"]["bits_per_activation"] for row in (free, priced)]
    less = 100 * (free["accuracy_two_processes"] - priced["accuracy_two_processes"])
    assert (
        f"take {bits[0]:.1f} bits in place of 32, and {bits[1]:.1f} with a rate penalty and {less:.1f} points" in text
    )


def test_what_soft_quantisation_gives_is_what_the_records_say() -> None:
    text, runs = said("squaf.md"), Runs.committed()
    curve = runs.study("squaf-figure-3-short")
    bits = [curve.mean(f"SQUAF-P price={price}", "bits_huffman") for price in ("0", "0.006")]
    right = [100 * curve.mean("SQUAF-P price=0.006", "accuracy_sampled"), 100 * curve.mean("relu", "accuracy")]
    assert f"{bits[0]:.2f} an activation without a price on them and {bits[1]:.2f} at the paper's largest" in text
    assert f"with {right[0]:.2f} % beside ReLU's {right[1]:.2f} %." in text
    deep = runs.study("squaf-table-6-vgg13-short")
    level = [f"{100 * deep.mean(label, 'accuracy'):.2f}" for label in ("squaf", "gelu", "swish", "relu")]
    assert "({}, {} and {} %; ReLU {} %)".format(*level) in text
    # The sentences of the page, by the verdicts that they rest on.
    verdicts = {entry.statement.name: entry.verdict for entry in judge(find_statements(["squaf"]), runs)}
    wanted = {
        "stores_pictures_best": "shown",
        "fits_two_dimensions_best": "shown",
        "fits_one_dimension_best": "not shown",
        "classifies_clusters_best": "not shown",
        "start_of_q_and_alpha_matters_little": "not shown",
        "best_in_a_small_network": "supported",
        "best_in_vgg13": "not shown",
        "best_in_a_transformer": "not shown",
        "training_every_squaf_overfits": "supported",
        "best_student": "supported",
        "student_surpasses_its_teacher": "doubted",
    }
    assert {name: verdicts[name] for name in wanted} == wanted


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
