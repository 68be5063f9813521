"""The papers' language experiment: a model is fine-tuned and then trained on preferences, with other activations.

For each seed and each activation (the model's own always beside them): the activation is put in, the model is trained
on the chosen replies (SFT), and from there once for each beta on the preferences (DPO). Reported, as the three papers
do: evaluation loss (EL), reward margin (ERM), reward accuracy (ERA), the rewards, and the perplexity of the chosen
replies after both stages.
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch

from ...errors import ParameterError
from ...measure.record import Quantity, Record
from ..kept import Kept, file_name
from .loading import AS_LOADED, LanguageModel, full_text, put_in_
from .preferences import PairTokens, Preferences, tokenize
from .trl_backend import need_tokenizer_of_transformers, prefer_with_trl_, supervise_with_trl_
from .tuning import Recipe, log_probabilities, prefer_, reply_perplexity, scores_of, supervise_

KIND = "study preference"
BACKENDS = ("own", "trl")
# A few pairs and steps on short texts: the whole way in seconds.
SMOKE = Recipe(batch=2, micro_batch=2, steps=2, warmup=1, length=48, prompt_length=24, learning_rate=1e-5)
_SMOKE_PAIRS = 4
_UNITS = {
    "evaluation_loss": "nats",
    "reward_margin": "nats",
    "reward_accuracy": "share",
    "chosen_reward": "nats",
    "rejected_reward": "nats",
    "perplexity_sft": "perplexity",
    "perplexity_dpo": "perplexity",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run: activations beside the model's own, penalties, seeds, and the recipe of both stages."""

    activations: tuple[str, ...]
    betas: tuple[float, ...] = (0.1,)
    seeds: tuple[int, ...] = (0,)
    recipe: Recipe = field(default_factory=Recipe)
    evaluation_pairs: int = 256
    backend: str = "own"
    device: str = "cpu"
    smoke: bool = False

    def __post_init__(self) -> None:
        if not self.betas or not self.seeds or self.evaluation_pairs < 1:
            raise ParameterError("The preference study needs a beta, a seed and a pair to evaluate on at least.")
        if any(not 0 < beta < math.inf for beta in self.betas):
            raise ParameterError(f"beta of DPO must be a positive number, and {self.betas} were given.")
        if self.backend not in BACKENDS:
            raise ParameterError(f"The backend is 'own' or 'trl', not {self.backend!r}.")
        if len({full_text(one) for one in (AS_LOADED, *self.activations)}) != 1 + len(self.activations):
            raise ParameterError("An activation was asked for twice; the model's own is always run and not named.")

    def for_smoke(self) -> Settings:
        """The same in a form that takes seconds."""
        return replace(self, recipe=SMOKE, seeds=self.seeds[:1], betas=self.betas[:1], evaluation_pairs=4, smoke=True)

    def rows(self) -> tuple[str, ...]:
        return (AS_LOADED, *self.activations)


def divide(train: Preferences, test: Preferences | None, settings: Settings) -> tuple[Preferences, Preferences]:
    """The pairs to train on and those to evaluate on.

    The latter are so many of the test files, evenly spread over them, so that every file has its share; where there is
    no test file, the last of those to train on.
    """
    count = settings.evaluation_pairs
    if settings.smoke:
        train = replace(train, pairs=train.pairs[: _SMOKE_PAIRS + (count if test is None else 0)])
    if test is not None:
        taken = min(count, len(test))
        return train, replace(test, pairs=tuple(test.pairs[at * len(test) // taken] for at in range(taken)))
    if len(train) <= count:
        raise ParameterError(
            f"There are {len(train)} pairs, and {count} of them are to be kept for evaluation; nothing is left to "
            f"train on. Ask for fewer with --eval-pairs, or give a file with --eval-data."
        )
    return replace(train, pairs=train.pairs[:-count]), Preferences(pairs=train.pairs[-count:])


def steps(settings: Settings, pairs: int) -> int:
    """How often `run` reports progress: once for every optimiser step."""
    return len(settings.seeds) * len(settings.rows()) * (1 + len(settings.betas)) * settings.recipe.steps_of(pairs)


def run(
    settings: Settings,
    language: LanguageModel,
    train: Preferences,
    test: Preferences,
    *,
    command: str,
    advance: Callable[[str], None] = lambda _: None,
    keep: str | os.PathLike[str] | None = None,
) -> Record:
    """Train everything and return the record; the given model is left as it is.

    In the folder `keep` the findings of each activation and seed are kept as they come (`lab.kept`).
    """
    recipe = settings.recipe
    if recipe.length > language.context:
        raise ParameterError(
            f"Texts of {recipe.length} tokens do not fit {language.name}, which takes {language.context}. Give a "
            f"smaller --length."
        )
    if settings.backend == "trl":
        need_tokenizer_of_transformers(language.tokenizer, name=language.name)

    def numbers(pairs: Preferences) -> list[PairTokens]:
        sizes = {"length": recipe.length, "prompt_length": recipe.prompt_length}
        return [tokenize(one, language.tokenizer, **sizes) for one in pairs.pairs]

    tokens = numbers(train), numbers(test)
    each = [(seed, activation) for seed in settings.seeds for activation in settings.rows()]
    told = {"pairs": [train.sentence(), test.sentence()], "weights": _fingerprint(language.model)}
    kept = Kept(
        keep,
        kind=KIND,
        settings=_settings_of_record(settings, language, test) | told,
        names=[_name(activation, seed) for seed, activation in each],
    )
    found: dict[tuple[str, float], list[dict[str, float]]] = {}
    learned: dict[str, int] = {}
    intervals: dict[tuple[str, float], list[list[float]]] = {}
    for seed, activation in each:
        row = kept.found(
            _name(activation, seed),
            partial(_one, settings, language, activation, seed, tokens, advance),
            advance=partial(advance, f"{activation.partition('(')[0]} seed {seed}"),
            steps=(1 + len(settings.betas)) * recipe.steps_of(len(train)),
        )
        learned[activation] = row["learned"]
        for beta, one in zip(settings.betas, row["results"], strict=True):
            metrics = {name: math.nan if one["metrics"][name] is None else one["metrics"][name] for name in _UNITS}
            found.setdefault((activation, beta), []).append(metrics)
            intervals.setdefault((activation, beta), []).append(list(one["interval"]))
    return kept.of(_record(settings, language, train, test, found, intervals, learned, command))


def _name(activation: str, seed: int) -> str:
    return file_name("own" if activation == AS_LOADED else activation, "seed", seed)


def _fingerprint(model: torch.nn.Module) -> str:
    """A checksum of some weights: two models that are called the same are rarely alike in it."""
    found = hashlib.sha256()
    for name, one in model.state_dict().items():
        found.update(f"{name} {tuple(one.shape)}".encode())
        found.update(one.detach().flatten()[:64].float().cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def _one(
    settings: Settings,
    language: LanguageModel,
    activation: str,
    seed: int,
    tokens: tuple[Sequence[PairTokens], Sequence[PairTokens]],
    advance: Callable[[str], None],
) -> dict[str, Any]:
    """SFT once and DPO from there for each beta: metrics and Wilson's interval; the parameters of the activation.

    A metric that is not finite is None, as a record has it.
    """
    recipe, padding = settings.recipe, language.tokenizer.pad_token_id
    train, test = tokens
    model = copy.deepcopy(language.model)
    before = sum(one.numel() for one in model.parameters())
    put_in_(model, activation)
    learned = sum(one.numel() for one in model.parameters()) - before
    model.to(settings.device)

    def told(stage: str) -> Callable[[], None]:
        return lambda: advance(f"{activation.partition('(')[0]} {stage} seed {seed}")

    def measured() -> torch.Tensor:
        return log_probabilities(model, test, batch=recipe.micro_batch, padding=padding)

    by_trl = settings.backend == "trl"
    if by_trl:
        supervise_with_trl_(model, language.tokenizer, train, recipe, seed=seed, advance=told("SFT"))
    else:
        supervise_(model, train, recipe, seed=seed, padding=padding, advance=told("SFT"))
    reference = measured()
    start = {name: value.detach().clone() for name, value in model.state_dict().items()}
    results = []
    for beta in settings.betas:
        model.load_state_dict(start)
        tell = told(f"DPO {beta:g}")
        if by_trl:
            prefer_with_trl_(model, language.tokenizer, train, recipe, beta=beta, seed=seed, advance=tell)
        else:
            prefer_(model, train, recipe, beta=beta, seed=seed, padding=padding, advance=tell)
        after = measured()
        scores = scores_of(after, reference, beta=beta)
        result = {
            "evaluation_loss": scores.loss,
            "reward_margin": scores.margin,
            "reward_accuracy": scores.accuracy,
            "chosen_reward": scores.chosen_reward,
            "rejected_reward": scores.rejected_reward,
            "perplexity_sft": reply_perplexity(reference, test),
            "perplexity_dpo": reply_perplexity(after, test),
        }
        finite = {name: one if math.isfinite(one) else None for name, one in result.items()}
        results.append({"metrics": finite, "interval": list(scores.accuracy_interval())})
    return {"results": results, "learned": learned}


def _record(
    settings: Settings,
    language: LanguageModel,
    train: Preferences,
    test: Preferences,
    found: Mapping[tuple[str, float], Sequence[Mapping[str, float]]],
    intervals: Mapping[tuple[str, float], Sequence[Sequence[float]]],
    learned: Mapping[str, int],
    command: str,
) -> Record:
    rows = []
    for (activation, beta), results in found.items():
        row: dict[str, Any] = {
            "activation": activation,
            "text": "" if activation == AS_LOADED else full_text(activation),
            "beta": beta,
            "parameters_of_the_activation": learned[activation],
        }
        rows.append(row | _measured(results, intervals[activation, beta], settings.seeds))
    notes = [
        "Rewards against the same model after SFT, before DPO. accuracy_interval is Wilson's 95 % of one run.",
        f"To train on: {train.sentence()}. To evaluate on: {test.sentence()}.",
    ]
    if settings.smoke:
        notes.append("A smoke run: it shows that everything works, and its numbers mean nothing.")
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        seeds=settings.seeds,
        baseline="the model with its own activation, from the same weights on the same batches",
        settings=_settings_of_record(settings, language, test),
        notes=notes,
    )


def _settings_of_record(settings: Settings, language: LanguageModel, test: Preferences) -> dict[str, Any]:
    return {
        "model": language.name,
        "device": settings.device.partition(":")[0],
        "backend": settings.backend,
        "betas": settings.betas,
        "evaluation_pairs": len(test),
        "smoke": settings.smoke,
        **asdict(settings.recipe),
    }


def _measured(
    results: Sequence[Mapping[str, float]], intervals: Sequence[Sequence[float]], seeds: Sequence[int]
) -> dict[str, Any]:
    """The numbers of a row. Where a seed diverged there are none: the others are not averaged as if nothing were."""
    lost = [
        str(seed)
        for seed, one in zip(seeds, results, strict=True)
        if not all(math.isfinite(one[name]) for name in _UNITS)
    ]
    if lost:
        return {"not_run": f"diverged: a loss or a perplexity is not finite with seed {', '.join(lost)}"}
    found: dict[str, Any] = {"accuracy_interval_by_seed": list(intervals)}
    for name, unit in _UNITS.items():
        values = [one[name] for one in results]
        found |= {name: Quantity.mean(values, unit=unit), f"{name}_by_seed": values}
    return found


def preference_markdown(record: Record) -> str:
    """The table of a record of this study, with the columns of the papers."""
    heads = {"reward_accuracy": "ERA", "reward_margin": "ERM", "evaluation_loss": "EL"}
    heads |= {"chosen_reward": "chosen", "rejected_reward": "rejected"}
    heads |= {"perplexity_sft": "PPL after SFT", "perplexity_dpo": "PPL after DPO"}
    lines = [f"| beta | activation | {' | '.join(heads.values())} |", "|---:|---" + "|---:" * len(heads) + "|"]
    for row in sorted(record.rows, key=lambda one: one["beta"]):
        cells = [row[name].text(4) if name in row else "diverged" for name in heads]
        lines.append(f"| {row['beta']:g} | {row['activation']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
