"""What the guide to studies says: its recipe runs on own data, and the page shown is of its records."""

import re
from pathlib import Path

import pytest
from sklearn.datasets import load_iris

from softknee.lab.report import summarise
from softknee.lab.report.summary import origin_of
from softknee.lab.report.tables import markdown
from softknee.lab.studies.reading import find_recipe, read_recipe
from softknee.lab.studies.reporting import recipe_of
from softknee.lab.studies.store import KEPT, RunStore
from softknee.lab.studies.trials import Outcome
from softknee.measure import Record

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
(TEN_LINES,) = re.findall(r"```yaml\n(name: mine\n.*?)```", GUIDE, flags=re.DOTALL)

MODEL = """
from torch import nn


def make(input_shape, classes, activation, width):
    return nn.Sequential(nn.Linear(input_shape[0], width), activation(), nn.Linear(width, classes))
"""


def test_the_recipe_for_own_data_and_model_is_ten_lines():
    assert len(TEN_LINES.splitlines()) <= 10


def test_it_runs_on_own_data_and_model_up_to_the_report(softknee, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    flowers = load_iris()
    rows = [
        ",".join([*(f"{number:g}" for number in row), str(flowers.target_names[kind])])
        for row, kind in zip(flowers.data, flowers.target, strict=True)
    ]
    (tmp_path / "flowers.csv").write_text("\n".join(["sl,sw,pl,pw,species", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "my_model.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(TEN_LINES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # Fewer epochs than the guide asks for, and no timing: the rest is as it stands.
    shorter = ["--set", "training.epochs=12", "--set", "measures=[prediction_difference]"]
    code, out, err = softknee("study", "mine.yaml", *shorter)
    assert code == 0, err
    for label in ("relu (baseline)", "gelu", "smelu beta=0.5", "smelu beta=1", "srelu"):
        (line,) = [item for item in out.splitlines() if item.lstrip().startswith(f"{label} ")]
        assert float(line.removeprefix(f" {label}").split()[0]) > 80  # three kinds of flowers: guessing gives 33 %
    for name in ("index.html", "report.md", "results.csv", "seeds.csv", "report.tex"):
        assert (tmp_path / "studies" / "mine" / "report" / name).stat().st_size > 0


def test_the_page_in_the_docs_is_of_the_shipped_recipe_and_of_its_records():
    store = RunStore(ROOT / "docs" / "quickstart")
    recipe = recipe_of(store)
    # Not by the store: it would miss the predictions, 4 MB that are not in the repository.
    results = [Record.read(file) for file in (ROOT / "docs" / "quickstart" / "trials").iterdir()]
    records = sorted(results, key=lambda one: one.settings[KEPT]["position"])
    assert recipe == find_recipe("quickstart")
    assert len({choice.name for choice in recipe.activations}) == 7
    assert recipe.seeds.count == 12
    outcomes = [Outcome.read(record) for record in records]
    assert {item.trial.kind for item in outcomes} == {"train", "cost"}
    folder = ROOT / "docs" / "quickstart" / "report"
    command = "softknee study quickstart"
    made = markdown(summarise(recipe, outcomes), origin_of(recipe, command=command, records=records))
    written = (folder / "report.md").read_text(encoding="utf-8")
    assert made == written
    trained = [outcome.trial.key for outcome in outcomes if outcome.trial.kind == "train"]
    assert all(f"../trials/{key}.json" in written for key in trained)


def test_every_setting_of_the_guide_is_one():
    settings = re.findall(r"`((?:seeds|tuning|training): \{[^`]+|(?:select|init): \w+)`", GUIDE)
    assert len(settings) >= 6
    for setting in settings:
        read_recipe(f"name: x\ndata: {{set: digits}}\nactivations: [relu]\n{setting}\n")
