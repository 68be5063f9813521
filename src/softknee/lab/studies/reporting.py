"""The report of a run store, written into it."""

from __future__ import annotations

from importlib.util import find_spec

from ...errors import MissingToolError, RecipeError
from .description import StoreError
from .outcome import Outcome
from .reading import read_recipe
from .recipe import Recipe
from .store import REPORT, STUDY, RunStore
from .yaml_text import dump

PAGE = "index.html"


def check_tools() -> None:
    """Raise where a report could not be drawn: to be asked before the training, and not after it."""
    if find_spec("vl_convert") is None:
        raise MissingToolError(
            "The report needs the package 'vl-convert-python', which is not installed. Install it with: pip install "
            "'softknee[lab]'; or leave the report out with --no-report."
        )


def recipe_of(store: RunStore) -> Recipe:
    """The recipe of the study that a store holds."""
    found = store.description()
    if found is None:
        raise StoreError(f"'{store.url}' holds no study: it has no study.json. Name the folder that --out named.")
    try:
        return read_recipe(dump(found.recipe))
    except RecipeError as error:
        raise StoreError(f"'{store.folder.place(STUDY)}' holds a recipe that cannot be used here. {error}") from error


def write_report_into(store: RunStore, *, command: str) -> str:
    """Make the report of what is finished and write it beside the records; the place of its page."""
    from ..report import report_files

    recipe = recipe_of(store)
    records = store.records(with_files=False)  # of predictions and models, which may be left behind, it shows nothing
    outcomes = [Outcome.read(one) for one in records]
    if not any(one.trial.kind == "train" for one in outcomes):
        raise StoreError(f"'{store.url}' has no finished training yet, so there is nothing to report. Use --resume.")
    for name, content in report_files(recipe, outcomes, command=command, records=records).items():
        store.folder.write(f"{REPORT}/{name}", content, what="report")
    return store.folder.place(f"{REPORT}/{PAGE}")
