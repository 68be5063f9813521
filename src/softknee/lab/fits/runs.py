"""What a run folder holds for a picture: examples, each activation's outputs on the test part, its trained models.

A folder may be whole, unfinished, or without the files of its trials (records are small and are shared without them):
what is missing becomes a sentence, and the rest is drawn.
"""

from __future__ import annotations

import hashlib
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import DataError
from ..studies.building import model_maker
from ..studies.examples import Examples, recipe_examples
from ..studies.reading import combinations
from ..studies.recipe import Recipe
from ..studies.reporting import recipe_of
from ..studies.running.training import read_tensors
from ..studies.store import FILES, KEPT, TRIALS, RunStore
from ..studies.trials import Each, Outcome

_WRITTEN = (
    *("ReLU", "GELU", "LReLU", "PReLU", "SiLU", "Swish", "CRReLU", "PolyReLU", "PolyNorm", "DiTAC", "KAF"),
    *("SQUAF", "SmeLU", "S-ReLU", "ELU", "Mish", "softplus", "tanh"),
)
_BY_LETTERS = {name.lower().replace("-", ""): name for name in _WRITTEN} | {"leakyrelu": "LReLU"}


def shown(label: str) -> str:
    """A label of a recipe for readers; words that are no known function stay as they are.

    >>> shown("polynorm"), shown("squaf q=0.5"), shown("leaky_relu")
    ('PolyNorm', 'SQUAF q=0.5', 'LReLU')
    """
    first, *rest = re.split(r"(?<=\w)(?=[ (,])", label, maxsplit=1)
    return _BY_LETTERS.get(first.lower().replace("_", "").replace("-", ""), first) + "".join(rest)


PREDICTIONS, MODELS = "predictions.safetensors", "models.safetensors"
_OUTPUTS = ("predictions", "probabilities")  # of a regression, of a classification


def median_seed(each: Each) -> int:
    """The place of the seed with the median number, the lower of two; seeds without a number are left out.

    >>> median_seed((3.0, None, 1.0, 2.0))
    3
    """
    known = sorted((value, place) for place, value in enumerate(each) if value is not None)
    if not known:
        raise DataError("There is no median seed: every seed diverged.")
    return known[(len(known) - 1) // 2][1]


def mean_of(each: Each) -> float | None:
    """The mean over seeds; None where one of them diverged, for the others alone would look better than it is."""
    known = [value for value in each if value is not None]
    return statistics.fmean(known) if known and len(known) == len(each) else None


@dataclass(frozen=True, eq=False)
class Fit:
    """One trained activation of a run.

    title: its label as the papers write it.
    files: size and checksum of each file that the trial kept, by its name; the file itself may be missing.
    """

    run: Run = field(repr=False)
    outcome: Outcome = field(repr=False)
    title: str
    files: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """What the report calls the activation."""
        return self.outcome.trial.activation.label

    @property
    def name(self) -> str:
        """The activation's name."""
        return self.outcome.trial.activation.name

    @property
    def diverged(self) -> int:
        """How many seeds diverged."""
        return sum(epoch is not None for epoch in self.outcome.diverged)

    def each(self, measure: str) -> Each:
        """The test score of every seed."""
        if measure not in self.outcome.test:
            known = ", ".join(self.outcome.test) or "none"
            raise DataError(f"{self.run.url!r}: {self.label} has no test score {measure!r}; it has {known}.")
        return self.outcome.test[measure]

    def seed(self, measure: str) -> int:
        """The place of the seed that is drawn: the median by this test score."""
        return median_seed(self.each(measure))

    def number(self, place: int) -> int:
        """The seed's own number."""
        return self.outcome.trial.seeds.numbers[place]

    @cached_property
    def predictions(self) -> Tensor | None:
        """Outputs on the test part, [seeds, examples, ...]; None where the run did not keep them."""
        tensors = self._file(PREDICTIONS)
        return next((tensors[name] for name in _OUTPUTS if name in tensors), None)

    @cached_property
    def truth(self) -> Tensor | None:
        """The targets or classes of the test part as the run kept them; None where it did not."""
        return self._file(PREDICTIONS).get("labels")

    @cached_property
    def weights(self) -> Mapping[str, Tensor]:
        """Parameters and buffers of the trained models, [seeds, ...] each; empty where the run did not keep them."""
        return self._file(MODELS)

    def _file(self, name: str) -> Mapping[str, Tensor]:
        known = self.files.get(name)
        content = None if known is None else self.run.store.folder.read(f"{FILES}/{self.outcome.trial.key}.{name}")
        if content is None or known is None:
            return {}
        if hashlib.sha256(content).hexdigest() != known["sha256"]:
            raise DataError(f"{self.run.url!r}: the file {name!r} of {self.label} is not what was written there.")
        return read_tensors(content)

    def model(self, place: int, *, trained: bool = True) -> nn.Module:
        """The model of a seed after training, from the kept weights; or as it was made, before it."""
        trial = self.outcome.trial
        make = model_maker(trial.model, trial.activation, self.run.examples, init=trial.init, loss=trial.training.loss)
        made = make(seed=trial.seeds.first if trial.seeds.share_init else self.number(place))
        if trained:
            made.load_state_dict({name: weight[place] for name, weight in self.weights.items()})
        return made.eval()


@dataclass(frozen=True, eq=False)
class Run:
    """A study's folder, read: its recipe, the activations that were trained in the recipe's order, what is missing."""

    store: RunStore = field(repr=False)
    recipe: Recipe
    data_folder: str | os.PathLike[str] | None = None
    fits: list[Fit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where the study lies."""
        return self.store.url

    @property
    def name(self) -> str:
        """What files of it are called."""
        return self.recipe.name

    @property
    def data(self) -> str:
        """The data set, or the file, that it was trained on."""
        return self.recipe.data.set or str(self.recipe.data.file)

    @cached_property
    def examples(self) -> Examples:
        """The examples that it was trained and tested on; refused where they are others now.

        Examples that are computed may differ in their last bits between two machines: what counts then is the truth
        that was kept beside the predictions.
        """
        examples = recipe_examples(self.recipe, folder=self.data_folder)
        if all(fit.outcome.trial.fingerprint == examples.fingerprint for fit in self.fits):
            return examples
        truths = [fit.truth for fit in self.fits if fit.truth is not None]
        now = examples.test_y
        if not all(
            truth.shape == now.shape and torch.allclose(truth.double(), now.double(), rtol=1e-5, atol=1e-6)
            for truth in truths
        ):
            raise DataError(f"'{self.url}' was trained on other examples than {self.data!r} has now.")
        compared = "its test part is the same but for last bits" if truths else "what it was tested on was not kept"
        self.notes.append(f"'{self.url}' was trained on examples with another fingerprint than here; {compared}.")
        return examples

    def with_predictions(self) -> list[Fit]:
        """The fits whose outputs were kept; a note says which others there are."""
        fits = [fit for fit in self.fits if fit.predictions is not None]
        self._say_missing(fits, "predictions")
        return fits

    def with_models(self) -> list[Fit]:
        """The fits whose models were kept; a note says which others there are."""
        fits = [fit for fit in self.fits if fit.weights]
        self._say_missing(fits, "models")
        return fits

    def _say_missing(self, fits: Sequence[Fit], what: str) -> None:
        without = [fit.label for fit in self.fits if fit not in fits]
        if not without:
            return
        wanted = what in self.recipe.keep
        why = "their files are not in the folder" if wanted else f"the recipe does not keep them (keep: [{what}])"
        note = f"'{self.url}' has no {what} of {', '.join(without)}: {why}, so they are not drawn."
        if note not in self.notes:
            self.notes.append(note)


def read_run(place: str | os.PathLike[str], *, data_folder: str | os.PathLike[str] | None = None) -> Run:
    """Read a run folder, or any URL that a study can be written to.

    data_folder: what holds data sets that do not come with softknee; by default the one that SOFTKNEE_DATA names.
    """
    store = RunStore(place)
    run = Run(store=store, recipe=recipe_of(store), data_folder=data_folder)
    order = [combination.label for choice in run.recipe.activations for combination in combinations(choice)]
    fits: dict[str, Fit] = {}
    for key in store.finished():
        record = store.read(key)
        outcome = Outcome.read(record)
        if outcome.trial.key != key:
            raise DataError(f"'{store.folder.place(f'{TRIALS}/{key}.json')}' is the record of another trial.")
        if outcome.trial.kind == "train":
            label = outcome.trial.activation.label
            files = dict(record.settings.get(KEPT, {}).get("files", {}))
            alone = " alone" * (run.recipe.model.build == "alone")
            fits[label] = Fit(run=run, outcome=outcome, title=shown(label) + alone, files=files)
    run.fits.extend(sorted(fits.values(), key=lambda fit: order.index(fit.label) if fit.label in order else len(order)))
    if missing := [label for label in order if label not in fits]:
        run.notes.append(
            f"'{run.url}' is unfinished: {len(missing)} of {len(order)} activations are not trained yet "
            f"({', '.join(missing)}). Go on with softknee study --resume."
        )
    if not run.fits:
        raise DataError(f"'{run.url}' has no trained activation yet, so there is nothing to draw. Use --resume.")
    return run
