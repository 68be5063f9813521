"""Both stages by trl instead of our own loop, for those who want to compare the two.

trl trains; what it has trained is measured here with the same code as everything else. Settings and
numbers are the same: RMSprop, linear warm-up, clipping, no dropout, and the tokens of `pair_tokens`, because trl's own
cutting of long texts is another one. The order of the pairs is trl's own. What differs:

    SFT   trl's loss is the mean over the tokens of all replies of a batch, ours the sum over the tokens of a reply
    DPO   none: sigmoid loss of summed log-probabilities in both

Reference: github.com/huggingface/trl, SFTTrainer and DPOTrainer.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import torch

from ...errors import InputError
from ...surgery import param_groups
from .preferences import PairTokens
from .tokenizers import transformers, trl
from .tuning import Recipe, share_of_rate, without_dropout_

_NAMES = ("prompt", "chosen", "rejected")


def need_tokenizer_of_transformers(tokenizer: Any, *, name: str) -> None:
    """trl takes no other tokenizer than one of transformers, such as that of llama2.c; `name` is the model's."""
    library = transformers("The backend 'trl'")
    if not isinstance(tokenizer, library.PreTrainedTokenizerBase):
        raise InputError(
            f"The backend 'trl' takes a tokenizer of transformers alone, and that of {name} is none "
            f"({type(tokenizer).__name__}). Train it with task.backend=own, or give a model whose folder holds a "
            f"tokenizer of transformers."
        )


def _needed(pairs: Sequence[PairTokens], recipe: Recipe, seed: int) -> Sequence[PairTokens]:
    """Where the steps are less than one pass: the pairs that our own loop takes. trl prepares all that it is given."""
    count = recipe.steps_of(len(pairs)) * recipe.batch
    if count >= len(pairs):
        return pairs
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed)).tolist()
    return [pairs[place] for place in order[:count]]


def supervise_with_trl_(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[PairTokens],
    recipe: Recipe,
    *,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> list[float]:
    """Train in place on the chosen replies with trl's SFTTrainer; returns the losses it logged, in nats a token."""
    library = trl("The backend 'trl'")
    rows = [
        {
            "input_ids": [*pair.prompt, *pair.chosen],
            "completion_mask": [0] * len(pair.prompt) + [1] * len(pair.chosen),
        }
        for pair in _needed(pairs, recipe, seed)
    ]
    # Cut already; and no text is asked for where the numbers are given.
    own = {"max_length": None, "completion_only_loss": True}
    return _train(library.SFTTrainer, library.SFTConfig, model, tokenizer, rows, recipe, seed, advance, own)


def prefer_with_trl_(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[PairTokens],
    recipe: Recipe,
    *,
    beta: float,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> list[float]:
    """Train in place on preferences with trl's DPOTrainer; returns the losses that it logged, one for each step."""
    library = trl("The backend 'trl'")
    from trl.trainer.dpo_trainer import DataCollatorForPreference  # pyright: ignore[reportMissingImports]

    # trl wants texts, which it turns into numbers by its own rules. They are put aside: the batches are made of ours.
    # The last column keeps it from taking the reference of another run, of the same weights with another activation.
    run = secrets.token_hex(8)
    rows = [
        {
            "prompt": "a",
            "chosen": " b",
            "rejected": " c",
            **{f"own_{name}": list(getattr(pair, name)) for name in _NAMES},
            "run": run,
        }
        for pair in _needed(pairs, recipe, seed)
    ]
    collate = DataCollatorForPreference(pad_token_id=tokenizer.pad_token_id)

    def collated(examples: list[dict[str, Any]]) -> dict[str, Any]:
        return collate(
            [{**example, **{f"{name}_ids": example[f"own_{name}"] for name in _NAMES}} for example in examples]
        )

    own = {
        "beta": beta,
        "loss_type": ["sigmoid"],
        "max_length": None,
        "disable_dropout": True,
        "precompute_ref_log_probs": True,
        "precompute_ref_batch_size": recipe.micro_batch,
        "remove_unused_columns": False,
    }
    kind, config = library.DPOTrainer, library.DPOConfig
    return _train(kind, config, model, tokenizer, rows, recipe, seed, advance, own, data_collator=collated)


def _train(
    kind: Any,
    config: Any,
    model: Any,
    tokenizer: Any,
    rows: list[dict[str, Any]],
    recipe: Recipe,
    seed: int,
    advance: Callable[[], None],
    own: dict[str, Any],
    **more: Any,
) -> list[float]:
    """What both stages share: optimiser, schedule and settings as in `tuning`."""
    from datasets import Dataset, disable_progress_bars  # pyright: ignore[reportMissingImports] - comes with trl
    from transformers import PrinterCallback, TrainerCallback

    class Told(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            advance()

    without_dropout_(model)
    optimizer = torch.optim.RMSprop(
        param_groups(model, lr=recipe.learning_rate, lr_scale=recipe.activation_rate_factor)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_rate(step, recipe.warmup))
    on_gpu = next(model.parameters()).is_cuda
    disable_progress_bars()
    no_bars = patch.dict(os.environ, TQDM_DISABLE="1")  # trl shows a bar of its own without it
    with tempfile.TemporaryDirectory() as folder, _as_it_was(model), no_bars, warnings.catch_warnings():
        # accelerate's remark on a CPU without a GPU beside it, which says nothing about the training.
        warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true")
        wanted = {
            "output_dir": folder,
            "per_device_train_batch_size": recipe.micro_batch,
            "gradient_accumulation_steps": recipe.batch // recipe.micro_batch,
            "max_grad_norm": recipe.clip,
            "max_steps": recipe.steps_of(len(rows)),
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "seed": seed,
            "bf16": on_gpu,
            "use_cpu": not on_gpu,
            "gradient_checkpointing": False,
            "disable_tqdm": True,
            "dataloader_drop_last": True,
            "dataloader_pin_memory": on_gpu,
            **own,
        }
        known = {item.name for item in fields(config)}
        trainer = kind(
            model=model,
            args=config(**{name: value for name, value in wanted.items() if name in known}),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            optimizers=(optimizer, schedule),
            callbacks=[Told()],
            **more,
        )
        trainer.remove_callback(PrinterCallback)  # it would print every step amid our own progress
        trainer.train()
        losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    model.eval()
    return losses


@contextmanager
def _as_it_was(model: Any) -> Iterator[None]:
    """trl and accelerate put a `forward` of their own on a model, and change its settings; afterwards all is back."""
    kept = [(part, dict(vars(part))) for part in (model, model.config, model.generation_config)]
    try:
        yield
    finally:
        for part, before in kept:
            now = vars(part)
            for name in [name for name in now if name not in before]:
                del now[name]
            now.update(before)
