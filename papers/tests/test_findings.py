"""The empirical ledger: verdicts that follow from records, the rules, and what is said where records are missing."""

import math
import re
import shlex
from pathlib import Path

import pytest
import torch
from papers.claim import PAPERS
from papers.exhibits import EXHIBITS
from papers.ledger import find_statements
from papers.runs import Runs, recipe_file, recipe_named, recipe_names, without
from papers.squaf.findings import FITTING
from papers.statement import (
    FEWEST_SEEDS,
    LEFT_OPEN,
    NOT_RUN,
    NOT_SHOWN,
    REVERSED,
    SHOWN,
    Evidence,
    Judged,
    Part,
    corrected,
    judge,
    wins,
)
from papers.tables import COMMANDS, study_tables

from softknee.errors import DataError
from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.runner import recipe_mapping
from softknee.lab.studies.store import Description, RunStore
from softknee.lab.studies.trials import Outcome, train_trials
from softknee.measure import Record

ROOT = Path(__file__).parents[2]


SEEDS = 10  # of squaf-table-3-1d


def store(folder, name, scores):
    """Records of a study with these scores: {label: {measure: mean}} with a little noise, or a list for the seeds."""
    recipe = recipe_named(name)
    seeds, trials = recipe.seeds.count, train_trials(recipe, recipe_examples(recipe))
    (folder / name / "trials").mkdir(parents=True)
    for place, trial in enumerate(trials):
        each = scores(trial.activation.label)
        noise = torch.randn(seeds, generator=torch.Generator().manual_seed(place), dtype=torch.float64)
        tests = {
            measure: tuple(item) if isinstance(item, list) else tuple((item * (1 + 0.01 * noise)).tolist())
            for measure, item in each.items()
        }
        gone = tuple(1 if value is None else None for value in next(iter(tests.values())))
        outcome = Outcome(
            trial=trial, seconds=1.0, diverged=gone, selected=tuple(None if entry else 9 for entry in gone), test=tests
        )
        record = outcome.record(command="test", git=None)
        record.settings["store"] = {"position": place}
        record.write(folder / name / "trials" / f"{trial.key}.json")


def verdict(folder, name):
    (result,) = judge(
        [statement for statement in find_statements(["squaf"]) if statement.id == f"squaf.{name}"], Runs(folder)
    )
    return result


def test_a_statement_holds_where_every_part_is_shown(tmp_path):
    store(tmp_path, "squaf-table-3-1d", lambda label: {"mse": 1e-5 if label == "squaf" else 1e-2})
    result = verdict(tmp_path, "fits_one_dimension_best")
    assert result.verdict == SHOWN
    assert len(result.evidence.parts) == len(FITTING)
    assert result.evidence.numbers["relu"] == pytest.approx(1e-2, rel=0.02)
    relu = result.evidence.parts[0]
    assert relu.difference == pytest.approx(3.0, abs=0.01)  # decades
    assert relu.printed == pytest.approx(math.log10(1e-2 / 4e-5))
    assert (relu.size, relu.seeds, relu.needed) == ("as printed", SEEDS, 2)
    smaller = [part for part in result.evidence.parts if part.size == "smaller"]
    assert all(part.printed > part.interval[1] for part in smaller)
    assert {"gelu", "kaf"} <= {part.says.split()[4] for part in smaller}  # 3.4 decades and more in the paper


def test_it_is_reversed_where_the_others_are_shown_to_be_better(tmp_path):
    store(tmp_path, "squaf-table-3-1d", lambda label: {"mse": 1e-1 if label == "squaf" else 1e-2})
    result = verdict(tmp_path, "fits_one_dimension_best")
    assert result.verdict == REVERSED
    assert all(part.difference < 0 for part in result.evidence.parts)
    assert result.size == "excluded"


def test_it_is_not_shown_where_one_other_does_as_well(tmp_path):
    store(tmp_path, "squaf-table-3-1d", lambda label: {"mse": 1e-5 if label in ("squaf", "ditac") else 1e-2})
    result = verdict(tmp_path, "fits_one_dimension_best")
    assert (result.verdict, result.counts) == (NOT_SHOWN, "9 shown, 1 not shown")
    (equal,) = (part for part in result.evidence.parts if "than ditac" in part.says)
    assert (equal.direction, equal.size) == (NOT_SHOWN, "excluded")  # the paper has 1.4 decades


def test_a_table_marks_the_best_and_what_is_not_shown_to_be_worse(tmp_path):
    near = {"squaf": 1e-5, "ditac": 1e-5}
    store(tmp_path, "squaf-table-3-1d", lambda label: {"mse": near.get(label, 1e-2), "r2": 0.5})
    recipe = recipe_mapping(recipe_named("squaf-table-3-1d"))
    RunStore(tmp_path / "squaf-table-3-1d").describe(Description(recipe=recipe, fingerprint="", threads=1))
    table = "".join(study_tables(Runs(tmp_path), "squaf"))
    head, *lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    errors = {line[0]: line[head.index("mean squared error: paper") + 1] for line in lines}
    assert sorted(item[-1] for item in (errors["squaf"], errors["ditac"])) == ["*", "°"]
    assert all(errors[label][-1] == "]" for label in FITTING if label != "ditac")


@pytest.mark.parametrize(
    ("each", "verdict", "counts"),
    [
        ([SHOWN, SHOWN], SHOWN, ""),
        ([REVERSED, NOT_SHOWN, NOT_SHOWN], NOT_SHOWN, "2 not shown, 1 reversed"),
        ([REVERSED, REVERSED, NOT_SHOWN], REVERSED, "1 not shown, 2 reversed"),
        ([SHOWN, LEFT_OPEN], SHOWN, "1 shown, 1 left open"),
        ([LEFT_OPEN, NOT_RUN], NOT_SHOWN, "1 left open, 1 not run"),
        ([SHOWN, REVERSED], NOT_SHOWN, "1 shown, 1 reversed"),
        ([SHOWN, NOT_RUN], SHOWN, "1 shown, 1 not run"),
        ([NOT_RUN], "no records", ""),
    ],
)
def test_what_the_parts_make_of_a_statement(each, verdict, counts):
    """What was not run blocks nothing, and what one comparison shows another cannot take back."""
    statement = find_statements(["squaf"])[0]
    result = Judged(statement, Evidence([Part("", item) for item in each]))
    assert (result.verdict, result.counts) == (verdict, counts)
    stand_in = Judged(statement, result.evidence, stand_in="other data").verdict
    assert stand_in == {SHOWN: "supported", REVERSED: "doubted"}.get(verdict, verdict)


@pytest.mark.parametrize(
    ("direction", "interval", "size"),
    [
        (SHOWN, (0.5, 1.5), "as printed"),
        (SHOWN, (1.1, 1.5), "as printed"),  # more than the paper's is no failure
        (SHOWN, (0.5, 0.9), "smaller"),
        (NOT_SHOWN, (-0.5, 0.9), "excluded"),
        (REVERSED, (-1.5, -0.9), "excluded"),
        (NOT_SHOWN, (-0.5, 1.1), "open"),
        (SHOWN, None, ""),
    ],
)
def test_the_size_is_held_against_the_interval(direction, interval, size):
    assert Part("", direction, difference=0.0, interval=interval, printed=1.0).size == size
    assert Part("", direction, difference=0.0, interval=interval).size == ""


def test_what_diverges_with_every_seed_has_not_won(tmp_path):
    store(tmp_path, "squaf-table-3-1d", lambda label: {"mse": [None] * SEEDS if label == "squaf" else 1e-2})
    parts = wins(Runs(tmp_path).study("squaf-table-3-1d"), "squaf", FITTING, "mse")
    assert {part.direction for part in parts} == {REVERSED}


def test_a_few_seeds_show_nothing(tmp_path):
    few = [1e-5] * (FEWEST_SEEDS - 1) + [None] * (SEEDS - FEWEST_SEEDS + 1)
    store(tmp_path, "squaf-table-3-1d", lambda label: {"mse": few if label == "squaf" else 1e-2})
    parts = wins(Runs(tmp_path).study("squaf-table-3-1d"), "squaf", ["relu"], "mse")
    assert [part.direction for part in parts] == [NOT_SHOWN]


def test_holms_correction_is_over_what_was_run_unless_all_hold_at_once():
    parts = [Part(str(i), p=0.02, difference=1.0) for i in range(4)]
    assert [item.direction for item in corrected(parts)] == [SHOWN] * 4
    unsure = [*parts, Part("unsure", p=0.5, difference=1.0)]
    assert [item.direction for item in corrected(unsure)] == [NOT_SHOWN] * 5
    assert [item.p for item in corrected([*unsure, Part("", NOT_RUN)])][:2] == pytest.approx([0.1, 0.1])
    assert corrected([Part("down", p=0.001, difference=-1.0)])[0].direction == REVERSED


# What a recipe is for that no statement is judged by.
WITHOUT_STATEMENT = {
    "lambda-gelu-wikitext-small": "has taken the place of the command that made a record, which is judged",
    "lambda-gelu-wikitext-124m": "has taken the place of the command that made a record, which is judged",
}


def test_every_recipe_has_a_statement():
    used = {name for statement in find_statements() for name in (*statement.needs, *statement.instead.values())}
    assert set(recipe_names()) - used == set(WITHOUT_STATEMENT)


def test_kaf_is_the_worst_but_for_what_the_papers_table_has_above_it(tmp_path):
    for name in ("squaf-table-3-1d", "squaf-table-3-2d"):
        store(tmp_path, name, lambda label: {"mse": {"kaf": 0.1, "swish": 0.2}.get(label, 1e-2)})
    parts = verdict(tmp_path, "kaf_is_worst").evidence.parts
    assert len(parts) == 17
    (swish,) = (part for part in parts if "swish" in part.says)
    assert (swish.says.partition(":")[0], swish.direction) == ("squaf-table-3-1d", REVERSED)


def test_twenty_starts_against_the_best_other_activation(tmp_path):
    store(tmp_path, "squaf-table-1-camera", lambda label: {"psnr": 45.0 if label == "squaf" else 31.0, "ssim": 0.9})
    exceptions = ("q=0.1 h=10", "q=1 h=0.5")
    store(tmp_path, "squaf-table-12", lambda label: {"psnr": 25.0 if label in exceptions else 44.0})
    result = verdict(tmp_path, "start_of_q_and_alpha_matters_little")
    assert result.verdict == SHOWN
    assert len(result.evidence.parts) == 18  # the other two may do as they like


def test_records_that_are_not_there_are_said_to_be_missing(tmp_path):
    result = judge(find_statements(["squaf"]), Runs(tmp_path))
    assert {item.verdict for item in result} == {"no records"}
    assert "squaf-table-3-1d" in result[0].measured
    with pytest.raises(DataError, match="--results"):
        Runs(tmp_path / "nowhere").has("x")
    with pytest.raises(DataError, match=r"study run papers/squaf/recipes/table-12\.yaml"):
        Runs(tmp_path).study("squaf-table-12")


def test_every_statement_is_a_sentence_about_studies_that_exist():
    for statement in find_statements():
        assert statement.says.endswith(".")
        assert statement.how
        assert not statement.how.startswith("partial(")
        assert statement.different
        for name in (*statement.needs, *statement.instead.values()):
            assert name in COMMANDS or recipe_file(name) is not None, name


def test_the_commands_of_records_are_those_that_made_them_and_that_the_documents_give():
    page = " ".join((ROOT / "docs/language.md").read_text("utf-8").replace("\\\n", " ").split())
    made = Runs.committed().paths
    for name, command in COMMANDS.items():
        # Some records are of commands that recipes have replaced.
        if name in made and "study run" not in command:
            assert Record.read(made[name]).command == re.sub(r"papers/\w+/records/", "", command)
        if name.startswith("lambda-gelu-wikitext"):
            assert command in page


def test_the_command_of_a_row_leaves_out_where_it_wrote():
    assert without(
        shlex.split("softknee bench model m --swap a --swap 'b(x=1)' --json x.json --data /d --batch 4"), "--swap"
    ) == ["softknee", "bench", "model", "m", "--batch", "4"]


def test_the_command_judges_the_records(papers):
    code, out, _ = papers("--empirical")
    assert code == 0
    assert f"{len(find_statements())} statements" in out
    without = int(re.findall(r"(\d+) no\s+records", out)[-1])
    assert out.count("Different from the paper:") == len(find_statements()) - without > 0


def test_the_pages_name_every_table_of_a_paper_and_have_its_numbers_as_they_are_printed():
    pages = {paper.stem: (ROOT / "papers" / paper.stem / "README.md").read_text("utf-8") for paper in PAPERS}
    for stem, text in pages.items():
        assert all(f"| {value.place} | {value.title} |" in text for value in EXHIBITS[stem])
    judged = {item.statement.name: item for item in judge(find_statements(["lambda_gelu"]), Runs.committed())}
    drift = judged["drift_follows_temperature_and_rate"].evidence.numbers
    text = pages["lambda_gelu"]
    assert f"| 0.1 | {drift['t=0.1 c=1']:.2f} (" in text  # figure 1 as a grid
    hardness = judged["learned_gates_become_harder"].evidence.numbers["lambda-gelu-adult: λ-GELU uniform"]
    assert re.search(rf"\| λ-GELU uniform \| 86 \| [\d.]+ \| 46 \| \d+ \| 2\.45 \| {hardness:.2f} \| 3\.23 \|", text)
    assert "| relu | 10,333,914 | 78.1 | " in pages["smelu"]  # the paper has three digits
    assert "| squaf | 4,561 | 4,561 | 97.22 | " in pages["squaf"]  # its count of parameters beside ours


def test_the_best_of_the_others_is_not_one_that_diverged(tmp_path):
    def scores(label):
        return {"mse": [None] * SEEDS if label == "kaf" else 1e-5 if label == "squaf" else 1e-2}

    store(tmp_path, "squaf-table-3-1d", scores)
    result = verdict(tmp_path, "fits_one_dimension_best")
    assert math.isnan(result.evidence.numbers["kaf"])
    (kaf,) = (part for part in result.evidence.parts if "than kaf" in part.says)
    assert kaf.direction == NOT_SHOWN  # nothing to compare with


STUDIES = sorted([*ROOT.glob("papers/*/records/*/study.json"), *ROOT.glob("benchmarks/records/**/study.json")])


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.parent.name)
def test_every_study_on_record_is_as_it_was_written(study):
    files = sorted(study.parent.glob("trials/*.json"))
    assert files
    trials = RunStore(study.parent)
    for file in files:
        trials.read(file.stem)  # compares the checksum


def test_the_numbers_of_the_guide_on_entropy_are_those_of_the_page():
    root = Path(__file__).parents[2]
    guide, page = ((root / name).read_text() for name in ("docs/guides/entropic.md", "papers/eafo/README.md"))
    answer = guide.partition("## Does it help?")[2].partition("\n## ")[0]
    numbers = re.findall(r"\[-?\d\.\d+, -?\d\.\d+\]|\b\d+\.\d\d+\b", answer)
    assert len(numbers) > 10
    assert [each for each in numbers if each not in page] == []
