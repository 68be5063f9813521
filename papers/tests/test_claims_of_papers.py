"""The ledger of claims: every entry is complete and comes out as recorded, and the page is what a run makes now."""

import doctest
import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from papers import ledger
from papers.claim import CRASHED, FAILS, HOLDS, NOT_RUN, PAPERS, PARTLY, VERDICTS, Claim, Finding, claims_of
from papers.pages import CLAIMS, VERSIONS_LINE, front, page
from papers.runs import Runs
from papers.statement import judge
from papers.text import cell, plain

import softknee as sk
from softknee import design, measure
from softknee.errors import DefinitionError, FormulaError, ParameterError
from softknee.measure import Record
from softknee.registry import unregister
from softknee.spec import Activation, positive, x
from softknee.spec.algebra import Piecewise

PAGES = {paper: Path(__file__).parents[1] / paper.stem / "README.md" for paper in PAPERS}
ROW = {"id", "paper", "place", "claim", "check", "measured", "verdict", "expected", "parts", "numbers", "seconds"}


@pytest.fixture(scope="module")
def entries() -> tuple[ledger.Entry, ...]:
    """One run of everything, for all the tests of this file."""
    return ledger.run(ledger.find_claims())


def named(name: str) -> Claim:
    (result,) = [claim for claim in ledger.find_claims() if claim.id == name]
    return result


# -- what is there ----------------------------------------------------------------------------------------


def test_every_paper_has_its_claims():
    result = ledger.find_claims()
    assert len(result) >= 60
    for paper in PAPERS:
        assert len([claim for claim in result if claim.paper == paper]) >= 12
    assert len({claim.id for claim in result}) == len(result)
    assert [claim.paper for claim in result] == sorted((c.paper for c in result), key=PAPERS.index)


@pytest.mark.parametrize("claim", ledger.find_claims(), ids=lambda claim: claim.id)
def test_an_entry_says_where_what_and_how(claim: Claim):
    assert claim.paper in PAPERS
    assert re.search(
        r"[Ss]ection|[Aa]ppendi|[Tt]able|[Ff]act|[Rr]emark|[Pp]roposition|[Tt]heorem|[Ee]quation|Abstract", claim.place
    )
    assert len(claim.says) > 20
    assert len(claim.how) > 20
    assert "\\" not in plain(claim.says)


# What the ledger was asked to hold, and the errata of the formula sheet.
ASKED = {
    "uniform errors": ("mollification.srelu_distance", "smelu.smelu_becomes_relu", "lambda_gelu.becomes_relu"),
    "continuity classes": ("mollification.srelu_is_twice_differentiable", "smelu.smelu_is_once_differentiable"),
    "lipschitz constants": (
        "mollification.gelu_constant",
        "mollification.silu_constant",
        "mollification.mish_constant",
    ),
    "lipschitz bound": (
        "mollification.lipschitz_bound_for_bounded_functions",
        "mollification.lipschitz_bound_for_relu",
    ),
    "kernel": ("mollification.kernel_is_normalised", "mollification.kernel_is_smooth"),
    "gate": ("lambda_gelu.gate_distance", "lambda_gelu.target_hardness", "lambda_gelu.gate_is_half_a_step_away"),
    "special cases": ("smelu.special_cases", "smelu.leaky_smelu_is_raised", "smelu.origin_crossing"),
    "softplus": ("smelu.softplus_relation",),
    "worst function": (
        "eafo.worst_function_is_the_cdf",
        "eafo.legendre_condition",
        "eafo.uniform_density_gives_a_line",
    ),
    "variation": ("eafo.first_integral", "eafo.correction_formula", "eafo.no_minimum"),
    "sign": ("eafo.the_sign_of_the_correction", "eafo.crrelu_raises_the_entropy"),
    "inverse": ("eafo.inverse_error_bound", "eafo.the_proof_of_the_bound"),
    "scaling": ("eafo.scaling_changes_entropy_alone",),
    "squaf": ("squaf.slope_is_a_covariance", "squaf.slopes_by_table_and_grid", "squaf.slope_by_alpha"),
    "localisation": ("squaf.localisation", "squaf.universal_approximation"),
    "jump": ("squaf.five_points_jump", "squaf.full_sum_is_analytic", "squaf.laplacian_has_kinks"),
    "vanishing": ("squaf.slope_vanishes_outside_the_grid",),
    "prediction difference": ("smelu.two_models_two_labels", "smelu.hamming_over_pairs"),
    "tables": ("mollification.elu_and_celu_are_one", "smelu.criteo_embeddings", "squaf.parameters_of_the_networks"),
    "pseudocode": ("mollification.pseudocode_has_another_delta",),
}
WRONG = {
    "mollification.gelu_constant",
    "mollification.srelu_has_no_edge",
    "eafo.the_sign_of_the_correction",
    "eafo.crrelu_raises_the_entropy",
    "eafo.the_proof_of_the_bound",
    "eafo.scaling_changes_entropy_alone",
}


def test_what_was_asked_for_is_there(entries: tuple[ledger.Entry, ...]):
    verdicts = {entry.claim.id: entry.verdict for entry in entries}
    assert {name for names in ASKED.values() for name in names} <= set(verdicts)
    assert {name: verdicts[name] for name in WRONG} == dict.fromkeys(WRONG, FAILS)


# -- the run ----------------------------------------------------------------------------------------------


def test_every_verdict_is_the_one_on_record(entries: tuple[ledger.Entry, ...]):
    assert [(entry.claim.id, entry.verdict, entry.measured) for entry in entries if not entry.as_expected] == []


def test_numbers_of_the_formula_sheet(entries: tuple[ledger.Entry, ...]):
    numbers = {entry.claim.id: entry.finding.numbers for entry in entries if entry.finding is not None}
    assert numbers["mollification.gelu_constant"]["constant"] == pytest.approx(1.1289041451851547863, rel=1e-15)
    assert numbers["mollification.silu_constant"]["constant"] == pytest.approx(1.0998393201288669170, rel=1e-15)
    assert numbers["mollification.mish_constant"]["constant"] == pytest.approx(1.0884981612517278612, rel=1e-15)
    assert numbers["mollification.kernel_is_normalised"]["A"] == pytest.approx(2.2522836210435810105, rel=1e-15)
    bound = numbers["mollification.lipschitz_bound_for_bounded_functions"]
    assert bound["C_phi"] == pytest.approx(1.6571376797382103033, rel=1e-15)
    assert numbers["lambda_gelu.becomes_relu"]["distance_times_lambda"] == pytest.approx(0.16997120747990366, rel=1e-14)
    assert numbers["lambda_gelu.target_hardness"]["target"] == pytest.approx(159.576912161, rel=1e-11)
    entropy = numbers["eafo.crrelu_raises_the_entropy"]
    assert entropy == pytest.approx({"at_plus_0.01": 0.003516, "at_minus_0.01": -0.003555}, abs=5e-7)
    assert numbers["squaf.parameters_of_the_networks"]["vit_t_1000"] == 5717416


def test_the_pages_are_what_a_run_makes_now(entries: tuple[ledger.Entry, ...]):
    runs = Runs.committed()
    judged = judge(ledger.find_statements(), runs)
    for paper, path in PAGES.items():
        assert path.read_text(encoding="utf-8") == page(paper, entries, judged, runs), "run: python -m papers --pages"
    made, committed = front(entries, judged), (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    versions = re.compile(rf"{VERSIONS_LINE}.*")
    assert versions.sub("", committed) == versions.sub("", made), "run: python -m papers --pages"


def test_a_page_has_every_claim_with_its_verdict(entries: tuple[ledger.Entry, ...]):
    for paper, path in PAGES.items():
        section = path.read_text(encoding="utf-8").partition(f"## {CLAIMS}\n")[2].partition("\n## ")[0]
        rows = re.findall(r"<br>`(\w+)` \|.*\| (?:\*\*)?([a-z' ]+?)(?:\*\*)? \|$", section, re.MULTILINE)
        assert rows == [(entry.claim.name, entry.verdict) for entry in entries if entry.claim.paper == paper]
        for line in section.splitlines():
            if "<br>`" in line:  # a row has four cells: a bar inside one is escaped
                assert len(re.findall(r"(?<!\\)\|", line)) == 5, line


def test_the_record_can_be_read_back(entries: tuple[ledger.Entry, ...]):
    record = ledger.record(entries, command="python -m papers --json")
    assert record.kind == "claims"
    assert Record.from_json(record.to_json()) == record
    data = json.loads(record.to_json())
    assert data["versions"]["softknee"] == sk.__version__
    assert data["settings"]["claims"] == len(entries) == len(data["rows"])
    for row in data["rows"]:
        assert set(row) == ROW
        assert row["verdict"] in VERDICTS
        assert row["seconds"]["unit"] == "s"
        assert row["measured"]
        assert "$" not in row["claim"] + row["measured"] + row["place"]


# -- adding one, and breaking one ---------------------------------------------------------------------------


def test_adding_a_claim_is_one_function(monkeypatch: pytest.MonkeyPatch):
    @claims_of("squaf")(place="Section 9", says="Two and two is four.", expect=HOLDS)
    def arithmetic() -> Finding:
        """Addition."""
        return Finding("4", parts={"sum": 2 + 2 == 4})

    monkeypatch.setattr(import_module("papers.squaf.claims"), "arithmetic", arithmetic, raising=False)
    assert ledger.find_claims(["squaf"])[-1] is arithmetic or arithmetic in ledger.find_claims(["squaf"])
    entry = ledger.check(arithmetic)
    assert (entry.verdict, entry.measured, entry.as_expected) == (HOLDS, "4", True)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Claim:
    """A claim whose check raises, in the middle of the ledger; only its neighbours are left beside it."""

    @claims_of("eafo")(place="Section 0", says="This one cannot be checked.", expect=HOLDS)
    def impossible() -> Finding:
        """Divides by 0."""
        return Finding(str(1 / 0), parts={})

    module = import_module("papers.eafo.claims")
    for name, value in list(vars(module).items()):
        if isinstance(value, Claim) and name not in ("first_integral", "correction_formula"):
            monkeypatch.delattr(module, name)
    last = module.correction_formula
    monkeypatch.delattr(module, "correction_formula")
    monkeypatch.setattr(module, "impossible", impossible, raising=False)
    monkeypatch.setattr(module, "correction_formula", last, raising=False)
    return impossible


def test_a_crash_is_an_entry_and_the_rest_run_on(broken: Claim):
    before, crashed, after = ledger.run(ledger.find_claims(["eafo"]))
    assert (before.verdict, after.verdict) == (HOLDS, HOLDS)
    assert crashed.claim is broken
    assert crashed.verdict == CRASHED
    assert not crashed.as_expected
    assert crashed.measured == "ZeroDivisionError: division by zero"
    text = page(broken.paper, [before, crashed, after], [], Runs())
    assert "**crashed**" in text
    assert "Where it is wrong" not in text  # nothing was found of the paper
    assert text.index("## Checks that did not run") < text.index("ZeroDivisionError") < text.index(f"## {CLAIMS}")
    (row,) = ledger.record([crashed], command="x").rows
    assert row["verdict"] == CRASHED
    assert row["numbers"] == {}


def test_verdicts_follow_from_the_parts():
    assert Finding("", parts={"a": True, "b": True}).verdict == HOLDS
    assert Finding("", parts={"a": True, "b": False}).verdict == PARTLY
    assert Finding("", parts={"a": False}).verdict == FAILS
    assert Finding("", parts={}).verdict == NOT_RUN


@pytest.fixture
def replaced(request: pytest.FixtureRequest):
    """Puts another definition in the place of one of the zoo, and takes it back."""
    originals = {}

    def put(act: Activation) -> None:
        originals[act.name] = sk.get(act.name)
        sk.register(act, replace=True)

    yield put
    for name, act in originals.items():
        unregister(name)
        sk.register(act, replace=True)


beta, delta = positive("beta", 1.0), positive("delta", 0.01)
_b, _d = beta.symbol, delta.symbol
WRONG_SMELU = Piecewise((0, x <= -_b), (x, x >= _b), ((x + _b) ** 2 / (5 * _b), True))
WRONG_SRELU = Piecewise((0, x <= -_d), (x, x >= _d), (x / 2 + 3 * x**2 / (8 * _d) + _d / 4 - x**4 / (16 * _d**3), True))


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("smelu.smelu_is_once_differentiable", FAILS),
        ("smelu.smelu_is_relu_times_box", FAILS),
        ("smelu.special_cases", PARTLY),
        ("smelu.smelu_becomes_relu", FAILS),
    ],
)
def test_a_wrong_smelu_changes_the_verdict(replaced, name: str, verdict: str):
    assert ledger.check(named(name)).verdict == HOLDS
    replaced(Activation("smelu", WRONG_SMELU, params=(beta,), knob="beta", limit="relu"))
    assert ledger.check(named(name)).verdict == verdict


def test_a_wrong_srelu_changes_the_verdict(replaced):
    replaced(Activation("srelu", WRONG_SRELU, params=(delta,), knob="delta", limit="relu"))
    assert ledger.check(named("mollification.srelu_formula")).verdict == PARTLY
    assert ledger.check(named("mollification.srelu_is_twice_differentiable")).verdict == PARTLY
    assert ledger.check(named("mollification.srelu_distance")).verdict == FAILS


def test_a_gelu_with_the_printed_constant_would_hold(replaced):
    gelu = sk.get("gelu")
    replaced(Activation("gelu", gelu.formula * 1.084 / 1.1289041451851548, params=gelu.params))
    assert ledger.check(named("mollification.gelu_constant")).verdict == HOLDS


def test_wrong_engines_change_verdicts(monkeypatch: pytest.MonkeyPatch):
    change = design.entropy_change
    monkeypatch.setattr(design, "entropy_change", lambda *given, **more: -change(*given, **more))
    assert ledger.check(named("eafo.crrelu_raises_the_entropy")).verdict != FAILS
    result = measure.prediction_difference
    monkeypatch.setattr(
        measure, "prediction_difference", lambda given, **more: result(given**2 / (given**2).sum(2, keepdim=True))
    )
    assert ledger.check(named("smelu.two_models_two_labels")).verdict == FAILS


def test_a_window_that_does_not_cut_would_hold(monkeypatch: pytest.MonkeyPatch):
    module = import_module("papers.squaf.claims")
    squaf = sk.get("squaf")

    def uncut(given, **more):
        return squaf(given, **(more | {"window": None}))

    assert ledger.check(named("squaf.five_points_jump")).verdict == PARTLY
    monkeypatch.setattr(module, "get", lambda name: uncut)
    assert ledger.check(named("squaf.five_points_jump")).verdict == HOLDS


# -- the command ------------------------------------------------------------------------------------------


def test_the_command_prints_json_and_nothing_else(papers):
    code, out, _ = papers("--json", "--paper", "smelu")
    assert code == 0
    record = Record.from_json(out)
    assert {row["paper"] for row in record.rows} == {"Smooth activations and reproducibility in deep networks"}
    assert record.command == "python -m papers --json --paper smelu"


def test_the_command_prints_a_table_of_100_characters_and_writes_the_record(
    papers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    few = tuple(
        claim for claim in ledger.find_claims() if claim.name in ("slope_is_a_hard_sigmoid", "gelu_at_one", "gpt2_size")
    )
    monkeypatch.setattr(ledger, "find_claims", lambda papers=(): few)
    code, out, _ = papers("--json", str(tmp_path / "c.json"))
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "λ-GELU: learning gating hardness" in out
    assert re.search(r"3 claims in \d+\.\d s: 2 holds, 1 fails\.", out)
    assert len(Record.read(tmp_path / "c.json").rows) == 3


def test_the_command_fails_if_a_verdict_is_not_as_recorded(papers, broken: Claim):
    code, out, _ = papers("--paper", "eafo")
    assert code == 1
    assert "eafo.impossible: crashed, where the ledger has 'holds' on record." in out
    assert "1 crashed" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--paper", "squaff"), "Did you mean 'squaf'"),
        (("out.json",), "write it with --json out.json"),
        (("--pages", "--paper", "smelu"), "leave the other options out"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_code_2(papers, arguments: tuple[str, ...], sentence: str):
    code, out, err = papers(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err


@pytest.mark.parametrize("name", ["text", "claim", "ledger", "pages", "runs", "statement", "tables"])
def test_examples_run(name: str):
    assert doctest.testmod(import_module(f"papers.{name}")).failed == 0


# -- what is refused, and how formulas read ------------------------------------------------------------------


def check_without_words() -> Finding:
    return Finding("", parts={})


def test_an_incomplete_claim_is_refused():
    claim = claims_of("smelu")
    with pytest.raises(DefinitionError, match="no docstring"):
        claim(place="Section 1", says="A sentence.", expect=HOLDS)(check_without_words)
    with pytest.raises(DefinitionError, match="has no place"):
        claim(place=" ", says="A sentence.", expect=HOLDS)(check_without_words)
    with pytest.raises(DefinitionError, match="full stop"):
        claim(place="Section 1", says="Half a sentence", expect=HOLDS)(check_without_words)
    with pytest.raises(DefinitionError, match="a verdict is one of holds"):
        claim(place="Section 1", says="A sentence.", expect="maybe")(check_without_words)
    with pytest.raises(FormulaError, match=r"\\unknown"):
        claim(place="Section 1", says=r"$\unknown$ is a command.", expect=HOLDS)(check_without_words)
    with pytest.raises(ParameterError, match="Did you mean 'squaf'"):
        ledger.find_claims(["sqaf"])


def test_two_claims_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch):
    @claims_of("smelu")(place="Section 9", says="Another claim.", expect=HOLDS)
    def clean_regions() -> Finding:
        """Has the name of a claim of another attribute of the file."""
        return Finding("", parts={})

    monkeypatch.setattr(import_module("papers.smelu.claims"), "another", clean_regions, raising=False)
    with pytest.raises(DefinitionError, match=r"Two claims are called smelu\.clean_regions"):
        ledger.find_claims()


def test_formulas_in_plain_signs():
    assert plain(r"$\lambda_{\mathrm{target}} \ge 2/(\varepsilon\sqrt{2\pi})$") == "λ_target ≥ 2/(ε√(2π))"
    assert plain(r"$e^{-x^2/2}$ and $\frac{3}{2 \delta^{2}}$, $C^\infty$") == "e^(-x²/2) and 3/(2 δ²), C^∞"
    assert plain("no formula, 5 | 6") == "no formula, 5 | 6"
    assert cell("|x| and $a$") == r"\|x\| and $a$"
    with pytest.raises(FormulaError, match="lvert"):
        cell("$|x|$")
