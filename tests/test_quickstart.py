"""The quickstart: fair, repeatable, and a page that needs nothing beside itself."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from softknee.errors import ParameterError
from softknee.lab import quickstart
from softknee.lab.page import render, write_page
from softknee.measure import Record

pytest.importorskip("sklearn", reason="scikit-learn is not installed; it brings the digits")

SETTINGS = quickstart.Settings(seeds=(0,), epochs=2)


@pytest.fixture(scope="module")
def study() -> quickstart.Study:
    return quickstart.run(SETTINGS, command="softknee study quickstart")


def test_it_learns_and_reports(study: quickstart.Study) -> None:
    assert [outcome.entry.name for outcome in study.outcomes] == [entry.name for entry in quickstart.ENTRIES]
    assert len(study.outcomes) == 5
    for outcome in study.outcomes:
        # A tenth would be guessing; two epochs of every activation come far beyond that.
        assert outcome.accuracy[0] > 60
        assert outcome.seconds[0] > 0
        assert len(outcome.learned[0]) == quickstart.HIDDEN


def test_learned_parameters_moved_and_fixed_ones_have_none(study: quickstart.Study) -> None:
    learners = [outcome for outcome in study.outcomes if outcome.entry.learns]
    assert [outcome.entry.name for outcome in learners] == ["srelu", "smelu", "crrelu"]
    for outcome in learners:
        for layer in outcome.learned[0]:
            for name, start in outcome.entry.start.items():
                assert layer[name] != start


def test_same_seed_same_result(study: quickstart.Study) -> None:
    again = quickstart.run(SETTINGS, command="softknee study quickstart")
    for first, second in zip(study.outcomes, again.outcomes, strict=True):
        assert (first.accuracy, first.loss, first.learned) == (second.accuracy, second.loss, second.learned)


def test_every_activation_starts_from_the_same_weights() -> None:
    networks = [quickstart._network(entry, seed=3) for entry in quickstart.ENTRIES]
    for network in networks[1:]:
        for first, other in zip(networks[0], network, strict=True):
            if isinstance(first, torch.nn.Linear) and isinstance(other, torch.nn.Linear):
                assert torch.equal(first.weight, other.weight)
                assert torch.equal(first.bias, other.bias)


def test_it_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    quickstart._network(quickstart.ENTRIES[0], seed=1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_progress_is_told_once_per_epoch() -> None:
    settings = quickstart.Settings(seeds=(0,), epochs=1)
    told: list[str] = []
    quickstart.run(settings, command="softknee study quickstart", advance=told.append)
    assert len(told) == quickstart.steps(settings)
    assert set(told) == {entry.name for entry in quickstart.ENTRIES}


def test_the_record_holds_it_all(study: quickstart.Study) -> None:
    assert Record.from_json(study.record.to_json()) == study.record
    assert study.record.seeds == (0,)
    assert [row["function"] for row in study.record.rows] == [entry.name for entry in quickstart.ENTRIES]


class Reader(HTMLParser):
    """Collects what would make a browser fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.fetches: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "object", "embed"):
            self.fetches.append(tag)
        self.fetches += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "data")]


def test_the_page_needs_nothing_beside_itself(study: quickstart.Study, tmp_path: Path) -> None:
    path = write_page(study, tmp_path / "page.html")
    page = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert reader.fetches == []
    assert not re.search(r"https?:|url\(|@import", page)
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_the_page_is_well_formed_and_shows_everything(study: quickstart.Study) -> None:
    root = ElementTree.fromstring(render(study))
    figures = {figure.findtext("figcaption/b"): figure for figure in root.iter("figure")}
    assert list(figures) == [entry.name for entry in quickstart.ENTRIES]
    for outcome in study.outcomes:
        paths = list(figures[outcome.entry.name].iter("path"))
        # Function and derivative, before and, where something was learned, after in every layer.
        assert len(paths) == 2 * (1 + (quickstart.HIDDEN if outcome.entry.learns else 0))
        for path in paths:
            # On scales that fit all curves no curve is cut: it is one stroke through all points.
            assert path.attrib["d"].count("M") == 1
            assert path.attrib["d"].count("L") == 320
    text = "".join(root.itertext())
    for expected in ("Seeds", "Hardware", "Versions", "torch", "±", "softknee study quickstart"):
        assert expected in text


def test_settings_that_train_nothing_are_refused() -> None:
    with pytest.raises(ParameterError, match="a seed and an epoch at least"):
        quickstart.Settings(seeds=())
