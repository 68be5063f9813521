"""What the ledger refuses, and how its formulas read."""

from importlib import import_module

import pytest
from papers import ledger
from papers.claim import HOLDS, Finding, claims_of
from papers.text import cell, plain

from softknee.errors import DefinitionError, FormulaError, ParameterError


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
