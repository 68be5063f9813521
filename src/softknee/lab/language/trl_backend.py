"""Direct preference optimization by trl instead of our own loop, for those who want to compare the two.

trl trains; what it has trained is measured here with the same code as everything else (`tuning.evaluate`). The settings
are the same: RMSprop, linear warm-up, clipping, no dropout, sigmoid loss. trl cuts long texts by its own rules, so that
pairs beyond the length are not the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from ...surgery import param_groups
from .preferences import Pair
from .tools import trl
from .tuning import Recipe, share_of_rate


def prefer_with_trl_(
    model: Any, tokenizer: Any, pairs: Sequence[Pair], recipe: Recipe, *, beta: float, seed: int
) -> list[float]:
    """Train in place with trl's DPOTrainer; returns the losses that it logged, one for each step."""
    library = trl("The backend 'trl'")
    from datasets import Dataset  # pyright: ignore[reportMissingImports] - comes with trl

    table = Dataset.from_list([{"prompt": one.prompt, "chosen": one.chosen, "rejected": one.rejected} for one in pairs])
    steps = recipe.steps_of(len(pairs))
    optimizer = torch.optim.RMSprop(
        param_groups(model, lr=recipe.learning_rate, lr_scale=recipe.activation_rate_factor)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_rate(step, recipe.warmup))
    on_gpu = next(model.parameters()).is_cuda
    with tempfile.TemporaryDirectory() as folder:
        wanted = {
            "output_dir": folder,
            "beta": beta,
            "loss_type": "sigmoid",
            "max_length": recipe.length,
            "max_prompt_length": recipe.prompt_length,  # later versions have no such setting
            "disable_dropout": True,
            "precompute_ref_log_probs": True,
            "per_device_train_batch_size": recipe.micro_batch,
            "gradient_accumulation_steps": recipe.batch // recipe.micro_batch,
            "max_grad_norm": recipe.clip,
            "max_steps": steps,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "seed": seed,
            "bf16": on_gpu,
            "use_cpu": not on_gpu,
            "gradient_checkpointing": False,
            "disable_tqdm": True,
        }
        known = {one.name for one in fields(library.DPOConfig)}
        trainer = library.DPOTrainer(
            model=model,
            args=library.DPOConfig(**{name: value for name, value in wanted.items() if name in known}),
            train_dataset=table,
            processing_class=tokenizer,
            optimizers=(optimizer, schedule),
        )
        trainer.train()
        losses = [float(one["loss"]) for one in trainer.state.log_history if "loss" in one]
    model.eval()
    return losses
