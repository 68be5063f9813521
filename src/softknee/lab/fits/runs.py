"""What a run folder holds for a picture: examples, each activation's outputs on the test part, its trained models.

A folder may be whole, unfinished, or without the files of its trials (records are small and are shared without them):
what is missing becomes a sentence, and the rest is drawn.
"""

from __future__ import annotations

import hashlib
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import DataError, SoftkneeError
from ...measure.record import Record
from ...nn import SQUAF
from ...surgery.modules import activation_modules
from ..chart import INK, Chart, by_name, footnote, lines_legend, marks, number, points, sized
from ..studies.building import model_maker
from ..studies.examples import Examples, recipe_examples
from ..studies.reading import combinations
from ..studies.recipe import Recipe
from ..studies.reporting import recipe_of
from ..studies.running.training import read_tensors
from ..studies.store import FILES, KEPT, TRIALS, RunStore
from ..studies.trials import Each, Outcome
from .page import COLOURS, Drawn, shown, written

_COLUMNS, _TALL = 4, 168  # panels in a row; pixels
_POINTS, _SEEN = 1201, 4096
_MOST_SEEDS = 12  # thin lines of other seeds
_MANY_POINTS = 33  # more than that, and a panel is drawn wide
_LOOKS: dict[str, tuple[str, list[int]]] = {
    "start": (INK, [5, 3]),
    "learned": (COLOURS[1], [1, 0]),
    "other seeds": (COLOURS[0], [1, 0]),
    "pre-activations": ("#c9c8c2", [1, 0]),
}


@dataclass(frozen=True)
class Site:
    """One layer: its function over x at the start and after training, of the median seed and of others; the points of
    its grid and its values there; and which share of pre-activations falls between two edges (empty where not known).
    """

    path: str
    x: Tensor
    start: Tensor
    end: Tensor
    others: tuple[Tensor, ...]
    points: Tensor
    at_points: Tensor
    edges: Tensor
    shares: Tensor


def learned_fits(run: Run) -> list[Fit]:
    """The fits of a run whose SQUAFs were trained and can be drawn."""
    return [
        fit
        for fit in run.fits
        if fit.name == "squaf"
        and fit.outcome.trial.activation.learn
        and fit.outcome.trial.activation.per == "layer"
        and (fit.weights or fit.outcome.parameters)
        and any(epoch is None for epoch in fit.outcome.diverged)
    ]


def sites_of(fit: Fit, measure: str) -> list[Site]:
    """Every SQUAF of a fit in order of depth, of the median seed by a test score."""
    chosen = fit.seed(measure)
    alive = [place for place, epoch in enumerate(fit.outcome.diverged) if epoch is None and place != chosen]
    before, after = _squafs(fit.model(chosen, trained=False)), _after(fit, chosen)
    others = [_after(fit, place) for place in alive[: _MOST_SEEDS - 1]]
    alone = fit.outcome.trial.model.build == "alone"  # what comes in is the data itself
    seen = _seen(fit, chosen) if fit.weights and not alone else {}
    found = []
    for path, module in after.items():
        reach = max(_reach(module), _reach(before[path]))
        x = torch.linspace(-reach, reach, _POINTS)
        edges, shares = _histogram(seen[path], reach) if path in seen else (torch.empty(0), torch.empty(0))
        with torch.inference_mode():
            found.append(
                Site(
                    path=path,
                    x=x,
                    start=before[path](x),
                    end=module(x),
                    others=tuple(one[path](x) for one in others),
                    points=_grid(module),
                    at_points=module(_grid(module)),
                    edges=edges,
                    shares=shares,
                )
            )
    return found


def _squafs(model: nn.Module) -> dict[str, SQUAF]:
    return {path: one for path, one in activation_modules(model).items() if isinstance(one, SQUAF)}


def _after(fit: Fit, place: int) -> dict[str, SQUAF]:
    """The trained SQUAFs of a seed: from its kept model, or from the ends that the record has."""
    if fit.weights:
        return _squafs(fit.model(place))
    found = _squafs(fit.model(place, trained=False))
    for path, module in found.items():
        for p in module.params:
            name = f"{path}.{p.name}" if path else p.name
            value = module.effective(p).detach().double()
            width = value.shape[-1] if value.dim() and p.name in ("z", "grid") else 1
            names = [name] if width == 1 else [f"{name}[{entry}]" for entry in range(width)]
            ends = [
                fit.outcome.parameters[one]["end"][place] if one in fit.outcome.parameters else None for one in names
            ]
            if any(one is not None for one in ends):
                flat = value.flatten()
                new = [float(flat[entry]) if one is None else one for entry, one in enumerate(ends)]
                with torch.no_grad():
                    module._write(p, torch.tensor(new, dtype=torch.float64).reshape(value.shape))
    return found


def _grid(module: SQUAF) -> Tensor:
    if module.k is None:
        return module.grid.detach().flatten()
    return torch.arange(-module.k, module.k + 1) * module.q.detach().float().cpu().reshape(())


def _reach(module: SQUAF) -> float:
    """To the last point and half a step beyond, where SQUAF is all but constant."""
    points = _grid(module)
    return float(points.abs().max()) + float(points.diff().max())


@torch.inference_mode()
def _seen(fit: Fit, place: int) -> dict[str, Tensor]:
    """What comes into each SQUAF for some of the training examples."""
    model, found = fit.model(place), {}
    handles = [
        module.register_forward_pre_hook(lambda _, args, path=path: found.__setitem__(path, args[0].flatten()))
        for path, module in _squafs(model).items()
    ]
    x = fit.run.examples.train_x
    model(x[:: max(1, len(x) // _SEEN)])
    for handle in handles:
        handle.remove()
    return found


def _histogram(values: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """60 equal parts of [-reach, reach] and the share of values in each; those outside are in none."""
    counts, edges = torch.histogram(values.float().cpu(), bins=60, range=(-reach, reach))
    return edges, counts / values.numel()


# -- the figure --------------------------------------------------------------------------------------------


def shapes(run: Run, *, measure: str) -> Drawn:
    """A panel for each layer of each trained SQUAF."""
    fits = learned_fits(run)
    if not fits:
        raise DataError(f"'{run.url}' has no SQUAF with learned parameters to draw.")
    sites = {fit.label: sites_of(fit, measure) for fit in fits}
    several = len(fits) > 1
    panels = [
        (_title(fit, depth, several=several, many=len(sites[fit.label]) > 1), site)
        for fit in fits
        for depth, site in enumerate(sites[fit.label], start=1)
    ]
    fine = any(len(site.points) > _MANY_POINTS for _, site in panels)
    columns = min(2, len(panels)) if fine else min(_COLUMNS, max(len(layers) for layers in sites.values()))
    wide = max(400 if fine else 200, 440 // columns)  # the legend needs as much
    every = [site for _, site in panels]
    names = ["start", "learned"] + ["other seeds"] * any(site.others for site in every)
    names += ["pre-activations"] * any(len(site.shares) for site in every)
    figure = {
        "concat": [sized(_panel(title, site, names), wide, _TALL) for title, site in panels],
        "columns": columns,
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
        "title": footnote(f"In colour the seed with the median {written(measure)}{_numbers(fits, measure)}."),
    }
    words = "SQUAF of every layer before and after training; dots are the points of its grid"
    return Drawn(figure, f"{run.data}: {words}.")


def _title(fit: Fit, depth: int, *, several: bool, many: bool) -> str:
    layer = f"layer {depth}" if many else ""
    return ", ".join(one for one in (fit.title if several or not many else "", layer) if one)


def _numbers(fits: Sequence[Fit], measure: str) -> str:
    each = dict.fromkeys(fit.number(fit.seed(measure)) for fit in fits)
    return f" (seed {next(iter(each))})" if len(each) == 1 else ""


def _panel(title: str, site: Site, names: Sequence[str]) -> Chart:
    heights = torch.cat([site.start, site.end, *site.others])
    low, high = float(heights.min()), float(heights.max())
    room = 0.08 * ((high - low) or 1.0)
    floor = low - (3 * room if len(site.shares) else room)
    x = number("x", domain=(float(site.x[0]), float(site.x[-1])), axis={"tickCount": 5})
    y = number("y", domain=(floor, high + room), axis={"tickCount": 5})
    fine = len(site.points) > _MANY_POINTS
    legend = lines_legend(orient="top")
    looks = {name: _LOOKS[name] for name in names}
    colour = by_name(names, [look[0] for look in looks.values()], legend=legend)
    where = {"x": x, "y": y, "color": colour}
    where["strokeDash"] = by_name(names, [look[1] for look in looks.values()], legend=legend)
    tallest = float(site.shares.max()) or 1.0 if len(site.shares) else 1.0
    bars = [
        {"name": "pre-activations", "x": a, "to": b, "y": floor, "top": floor + 3.5 * room * share / tallest}
        for a, b, share in zip(site.edges.tolist(), site.edges.tolist()[1:], site.shares.tolist(), strict=False)
    ]
    bar_sides = {"x": x, "x2": {"field": "to"}, "y": y, "y2": {"field": "top"}, "color": colour}
    layers = [marks("rect", bars, bar_sides)] if bars else []
    layers += [
        marks(
            "line",
            points(site.x[::3].tolist(), other[::3].tolist(), name="other seeds"),
            where,
            strokeWidth=0.7,
            opacity=0.4,
        )
        for other in site.others
    ]
    layers += [
        marks(
            "line", points(site.x.tolist(), site.start.tolist(), name="start"), where, strokeWidth=0.8 if fine else 1.5
        ),
        marks(
            "line", points(site.x.tolist(), site.end.tolist(), name="learned"), where, strokeWidth=1.6 if fine else 2.2
        ),
        marks(
            "circle",
            points(site.points.tolist(), site.at_points.tolist(), name="learned"),
            where,
            size=10 if fine else 20,
            opacity=1,
        ),
    ]
    return {"title": {"text": title, "fontSize": 11.5}, "layer": layers}


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
        found = self._file(PREDICTIONS)
        return next((found[name] for name in _OUTPUTS if name in found), None)

    @cached_property
    def truth(self) -> Tensor | None:
        """The targets or classes of the test part as they were kept beside the outputs; None where they were not."""
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
            made.load_state_dict({name: one[place] for name, one in self.weights.items()})
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
        found = recipe_examples(self.recipe, folder=self.data_folder)
        if all(fit.outcome.trial.fingerprint == found.fingerprint for fit in self.fits):
            return found
        kept = [fit.truth for fit in self.fits if fit.truth is not None]
        if not all(_alike(one, found.test_y) for one in kept):
            raise DataError(f"'{self.url}' was trained on other examples than {self.data!r} has now.")
        compared = "its test part is the same but for last bits" if kept else "what it was tested on was not kept"
        self.notes.append(f"'{self.url}' was trained on examples with another fingerprint than here; {compared}.")
        return found

    def with_predictions(self) -> list[Fit]:
        """The fits whose outputs were kept; a note says which others there are."""
        kept = [fit for fit in self.fits if fit.predictions is not None]
        self._say_missing(kept, "predictions")
        return kept

    def with_models(self) -> list[Fit]:
        """The fits whose models were kept; a note says which others there are."""
        kept = [fit for fit in self.fits if fit.weights]
        self._say_missing(kept, "models")
        return kept

    def _say_missing(self, kept: Sequence[Fit], what: str) -> None:
        without = [fit.label for fit in self.fits if fit not in kept]
        if not without:
            return
        asked = what in self.recipe.keep
        why = "their files are not in the folder" if asked else f"the recipe does not keep them (keep: [{what}])"
        note = f"'{self.url}' has no {what} of {', '.join(without)}: {why}, so they are not drawn."
        if note not in self.notes:
            self.notes.append(note)


def _alike(kept: Tensor, now: Tensor) -> bool:
    return kept.shape == now.shape and torch.allclose(kept.double(), now.double(), rtol=1e-5, atol=1e-6)


def read_run(place: str | os.PathLike[str], *, data_folder: str | os.PathLike[str] | None = None) -> Run:
    """Read a run folder, or any URL that a study can be written to.

    data_folder: what holds data sets that do not come with softknee; by default the one that SOFTKNEE_DATA names.
    """
    store = RunStore(place)
    run = Run(store=store, recipe=recipe_of(store), data_folder=data_folder)
    order = [one.label for choice in run.recipe.activations for one in combinations(choice)]
    found: dict[str, Fit] = {}
    for key in store.finished():
        record = _record(store, key)
        outcome = Outcome.read(record)
        if outcome.trial.key != key:
            raise DataError(f"'{store.folder.place(f'{TRIALS}/{key}.json')}' is the record of another trial.")
        if outcome.trial.kind == "train":
            label = outcome.trial.activation.label
            files = dict(record.settings.get(KEPT, {}).get("files", {}))
            alone = " alone" * (run.recipe.model.build == "alone")
            found[label] = Fit(run=run, outcome=outcome, title=shown(label) + alone, files=files)
    run.fits.extend(
        sorted(found.values(), key=lambda fit: order.index(fit.label) if fit.label in order else len(order))
    )
    if missing := [label for label in order if label not in found]:
        run.notes.append(
            f"'{run.url}' is unfinished: {len(missing)} of {len(order)} activations are not trained yet "
            f"({', '.join(missing)}). Go on with softknee study --resume."
        )
    if not run.fits:
        raise DataError(f"'{run.url}' has no trained activation yet, so there is nothing to draw. Use --resume.")
    return run


def _record(store: RunStore, key: str) -> Record:
    """A record without its files, which need not be there."""
    name = f"{TRIALS}/{key}.json"
    source = f"'{store.folder.place(name)}'"
    try:
        return Record.from_json((store.folder.read(name) or b"").decode(), source=source)
    except UnicodeDecodeError as error:
        raise DataError(f"{source} is no record: it is not text in UTF-8.") from error
    except SoftkneeError as error:
        raise DataError(str(error)) from error
