"""The tasks of language models, which have a training of their own: one seed after the other, each to its end."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from ....surgery import relu_ize_, swap_
from ....surgery.modules import activation_modules
from ... import language_models
from ...data.text import Characters
from ...language import tuning
from ...language.preferences import scores_of
from ...language.text_perplexity import TextTokens, exp_or_infinite, foretell, replace_by_relu_
from ...language.trl_backend import prefer_with_trl_, supervise_with_trl_
from ..building import start_squaf_
from ..fitting import located
from ..recipe import OWN, Hardening, Language, Perplexity, Preference
from ..texts import Texts
from ..trial import Chosen, Trial
from ..trials import Finished, Outcome
from .training import MOST_ENTRIES, Watch, pack, spread_out, unpack

Advance = Callable[[], None]  # called after every step
Numbers = dict[str, float]
Work = Callable[[int, Advance], tuple[Numbers, nn.Module, dict[str, float]]]
_BETWEEN_LOOKS = 10  # steps
_HELD_OUT = "held_out"  # among the numbers of a seed
_RECOVERY_SEED = 1000  # above the seed of the training: other batches


def run_language_trial(trial: Trial, texts: Texts, *, saved: bytes | None, watch: Watch) -> Finished:
    """Run a trial of a language task. What is saved are the numbers of the seeds that came to their end."""
    work, steps = _work(trial, texts)
    state = {"rows": [], "seconds": 0.0} if saved is None else unpack(saved, of=trial.key)
    rows, begin = state["rows"], time.perf_counter() - state["seconds"]
    total = steps * trial.seeds.count

    def save() -> bytes:
        return pack({"rows": rows, "seconds": time.perf_counter() - begin}, of=trial.key)

    for place in range(len(rows), trial.seeds.count):
        done = itertools.count(place * steps + 1)

        def advance(done: Any = done) -> None:
            watch.step()
            step = next(done)
            if step % _BETWEEN_LOOKS == 1:
                watch.epoch(step, total, save)

        numbers, model, start = work(trial.seeds.numbers[place], advance)
        end = learned_numbers(model)
        rows.append(
            {
                "numbers": {name: value if math.isfinite(value) else None for name, value in numbers.items()},
                "parameters": {name: [start[name], end[name]] for name in start if start[name] != end.get(name)},
                "trained": sum(parameter.numel() for parameter in model.parameters()),
            }
        )
        watch.epoch((place + 1) * steps, total, save)
    return Finished(outcome=_outcome(trial, rows, seconds=time.perf_counter() - begin))


def _outcome(trial: Trial, rows: Sequence[Mapping[str, Any]], *, seconds: float) -> Outcome:
    count = len(rows)
    alive = [place for place, row in enumerate(rows) if not _is_lost(row["numbers"], trial)]
    scores = {
        name: spread_out([rows[place]["numbers"][name] for place in alive], alive, count)
        for name in rows[0]["numbers"]
        # A perplexity that no float64 can hold is left out, which the loss beside it explains.
        if all(rows[place]["numbers"][name] is not None for place in alive)
    }
    held_out = scores.pop(_HELD_OUT, None)
    moved = rows[alive[0]]["parameters"] if alive else {}
    return Outcome(
        trial=trial,
        seconds=seconds,
        diverged=tuple(None if place in alive else 1 for place in range(count)),
        selected=tuple(1 if place in alive else None for place in range(count)),
        test=scores,
        validation={} if held_out is None else {"loss": held_out},
        parameters={
            name: {
                "start": moved[name][0],
                "end": spread_out([rows[place]["parameters"][name][1] for place in alive], alive, count),
                "curve": (),
            }
            for name in moved
            if all(name in rows[place]["parameters"] for place in alive)
        },
        replacement=_replacement(scores),
        trained=None if isinstance(trial.task, Perplexity) else rows[0]["trained"],
    )


def _is_lost(numbers: Mapping[str, float | None], trial: Trial) -> bool:
    """Whether a seed diverged. A model that was not trained for it may be infinitely surprised."""
    every = isinstance(trial.task, Preference)
    return any(value is None and (every or "perplexity" not in name) for name, value in numbers.items())


def _replacement(test: Mapping[str, Any]) -> dict[str, Any] | None:
    after = {name: test[f"{name}_replaced"] for name in test if f"{name}_replaced" in test}
    return {"limit": "ReLU", "test": after} if after else None


def _work(trial: Trial, texts: Texts) -> tuple[Work, int]:
    """What is done for each seed, and in how many steps."""
    task, content, language = trial.task, texts.content, texts.language
    if isinstance(task, Language) and isinstance(content, Characters):
        return partial(_train_gpt2, trial, task, content.to(trial.device), texts.data.set == "wikitext-2"), task.steps
    if isinstance(task, Perplexity) and isinstance(content, TextTokens):
        return partial(_measure_text, trial, task, texts), 1
    assert isinstance(task, Preference)
    assert isinstance(content, tuple)
    assert language is not None
    recipe = _tuning(trial, task)
    return partial(_prefer, trial, task, recipe, texts), (1 + len(task.betas)) * recipe.steps_of(len(content[0]))


def learned_numbers(model: nn.Module) -> dict[str, float]:
    """Every parameter of an activation, by "path.name": the mean over channels, a short vector entry by entry."""
    numbers: dict[str, float] = {}
    for path, module in activation_modules(model).items():
        for p in module.params:
            width = math.prod(module._tail(p.name))
            if width > MOST_ENTRIES:
                continue
            means = module.effective(p).detach().double().reshape(-1, width).mean(dim=0).tolist()
            names = [p.name] if width == 1 else [f"{p.name}[{entry}]" for entry in range(width)]
            numbers |= {f"{path}.{name}": value for name, value in zip(names, means, strict=True)}
    return numbers


# -- GPT-2 from scratch ---------------------------------------------------------------------------------------


def gpt2_recipe(trial: Trial, task: Language) -> language_models.Recipe:
    """The network and its training, as `lab.language_models` takes them."""
    training, hardening = trial.training, trial.hardening or Hardening()
    return language_models.Recipe(
        **trial.model.arguments,
        context=task.context,
        batch=training.batch,
        steps=task.steps,
        warmup=task.warmup,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        activation_rate_factor=training.activation_rate,
        start=hardening.start,
        tolerance=hardening.tolerance,
        recover=task.recover,
        recover_rate=task.recover_rate,
        layerwise=task.layerwise,
        recorded=not task.eager,
    )


def _train_gpt2(
    trial: Trial, task: Language, data: Characters, tokens: bool, seed: int, advance: Advance
) -> tuple[Numbers, nn.Module, dict[str, float]]:
    recipe, chosen = gpt2_recipe(trial, task), trial.activation
    model = language_models.build(
        recipe, vocabulary=data.vocabulary, seed=seed, activation=chosen.name, knobs=_knobs(chosen)
    ).to(trial.device)
    start = learned_numbers(model)
    language_models.train(model, data, recipe, seed=seed, harden=chosen.harden, advance=advance)

    def loss(model: Any) -> float:
        return language_models.validation_loss(model, data, recipe)

    def recover(share: int) -> Callable[[Any], None]:
        return lambda model: language_models.recover(
            model, data, recipe, seed=seed + _RECOVERY_SEED, steps=recipe.recover // share
        )

    def replaceable() -> Any:
        """A copy whose stock GELU is softknee's, so that it can be replaced."""
        other = copy.deepcopy(model)
        if chosen.name == "gelu":
            swap_(other, "gelu_tanh", replacing="gelu")
        return other

    held_out = data.held_out
    choosing = {} if held_out is None else {_HELD_OUT: language_models.mean_loss(model, held_out, recipe)}
    if trial.kind == "tune":  # which never reads the text that judges
        return choosing, model, start
    numbers: dict[str, Any] = {"loss": loss(model)}
    if chosen.harden or chosen.replace:
        finetune = recover(1) if recipe.recover else None
        at_once = relu_ize_(replaceable(), loss, finetune=finetune, tolerance=math.inf)  # its cost is what is measured
        numbers["loss_replaced"] = at_once.after
        if recipe.recover:
            numbers["loss_recovered"] = at_once.recovered
            longer = copy.deepcopy(model)
            recover(1)(longer)
            numbers["loss_continued"] = loss(longer)
        if recipe.recover and recipe.layerwise:
            layer_by_layer = relu_ize_(replaceable(), loss, finetune=recover(recipe.layers), order="layerwise")
            numbers["loss_layerwise"] = layer_by_layer.recovered
    if tokens:
        numbers |= {name.replace("loss", "perplexity"): exp_or_infinite(value) for name, value in numbers.items()}
    return numbers | choosing, model, start


def _knobs(chosen: Chosen) -> dict[str, Any]:
    return {**chosen.values, "learn": chosen.learn, "per": chosen.per}


# -- pretrained models ----------------------------------------------------------------------------------------


def _pretrained(trial: Trial, texts: Texts) -> nn.Module:
    """A copy of the model with the activation in it; ReLU ends as torch's own, so that its path is the plain one."""
    assert texts.language is not None
    model, chosen = copy.deepcopy(texts.language.model), trial.activation
    if chosen.name != OWN:
        knobs: dict[str, Any] = _knobs(chosen)
        with located(f"model {texts.language.name!r} with {chosen.label}"):
            swap_(model, chosen.name, **knobs)
        start_squaf_(model, chosen)
        if chosen.name == "relu":
            relu_ize_(model)
    return model.to(trial.device)


def _measure_text(
    trial: Trial, task: Perplexity, texts: Texts, seed: int, advance: Advance
) -> tuple[Numbers, nn.Module, dict[str, float]]:
    assert texts.language is not None
    assert isinstance(texts.content, TextTokens)
    model = _pretrained(trial, texts)
    most = texts.language.context
    options = {"context": min(task.context or most, most), "stride": task.stride, "batch": trial.training.batch}
    if trial.activation.name == "relu":  # there is nothing to put in its place
        measured = {"": foretell(model, texts.content, **options)}
    else:
        replaced = replace_by_relu_(model, texts.content, **options)
        measured = {"": replaced.before, "_replaced": replaced.after}
    advance()
    names = ("loss", "perplexity", "word_perplexity")
    numbers = {f"{name}{suffix}": getattr(result, name) for suffix, result in measured.items() for name in names}
    return numbers, model, {}


def _tuning(trial: Trial, task: Preference) -> tuning.Recipe:
    training = trial.training
    return tuning.Recipe(
        learning_rate=training.learning_rate,
        warmup=task.warmup,
        batch=training.batch,
        micro_batch=task.micro_batch or training.batch,
        epochs=training.epochs,
        steps=task.steps,
        length=task.length,
        prompt_length=task.prompt_length,
        activation_rate_factor=training.activation_rate,
    )


def _prefer(
    trial: Trial, task: Preference, recipe: tuning.Recipe, texts: Texts, seed: int, advance: Advance
) -> tuple[Numbers, nn.Module, dict[str, float]]:
    """SFT once, and from there DPO with each beta."""
    assert texts.language is not None
    assert isinstance(texts.content, tuple)
    train, test = texts.content
    tokenizer = texts.language.tokenizer
    model = _pretrained(trial, texts)
    start, by_trl = learned_numbers(model), task.backend == "trl"
    common: dict[str, Any] = {"seed": seed, "advance": advance}

    def measured() -> torch.Tensor:
        return tuning.log_probabilities(model, test, batch=recipe.micro_batch, padding=tokenizer.pad_token_id)

    if by_trl:
        supervise_with_trl_(model, tokenizer, train, recipe, **common)
    else:
        tuning.supervise_(model, train, recipe, padding=tokenizer.pad_token_id, **common)
    reference = measured()
    supervised = {name: value.detach().clone() for name, value in model.state_dict().items()}
    numbers: Numbers = {"perplexity_sft": tuning.reply_perplexity(reference, test)}
    for beta in task.betas:
        model.load_state_dict(supervised)
        if by_trl:
            prefer_with_trl_(model, tokenizer, train, recipe, beta=beta, **common)
        else:
            tuning.prefer_(model, train, recipe, beta=beta, padding=tokenizer.pad_token_id, **common)
        after = measured()
        scores = scores_of(after, reference, beta=beta)
        results = {
            "reward_accuracy": scores.accuracy,
            "reward_margin": scores.margin,
            "evaluation_loss": scores.loss,
            "chosen_reward": scores.chosen_reward,
            "rejected_reward": scores.rejected_reward,
            "perplexity_dpo": tuning.reply_perplexity(after, test),
        }
        numbers |= {task.measure(name, beta): value for name, value in results.items()}
    return numbers, model, start
