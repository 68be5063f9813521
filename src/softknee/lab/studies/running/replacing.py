"""After hardening: every activation replaced by its hard limit, and what that costs on the test examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import ParameterError
from ....surgery import relu_ize_
from ....train.streamed import Streamed
from .scores import REGRESSION, judge, logits_of, spread_out
from .trainer import Trainer

_AT_ONCE = 1024


def replaced(
    trainer: Trainer, x: Tensor, y: Tensor, outputs: Tensor, *, task: str, rows: Sequence[int]
) -> dict[str, Any]:
    """The limit by name, the scores with it in place, and the share of predictions that changed.

    outputs: what the models said of x before.

    A seed whose activations no plain module can stand for any more has no numbers; "not_run" says why.
    """
    limits: dict[str, None] = {}
    refused: dict[str, None] = {}
    after = torch.full_like(outputs, float("nan"))
    there: list[int] = []
    for row in rows:
        model = trainer.model(row)
        try:
            report = relu_ize_(model)
        except ParameterError as error:  # what was learned beside the knob may have left every plain module
            refused[str(error)] = None
            continue
        limits |= dict.fromkeys(module.partition("(")[0] for module in report.replaced.values())
        after[row] = _predict(model, x)
        there.append(row)
    found: dict[str, Any] = {"limit": ", ".join(limits), "test": judge(after, y, task=task, rows=there)}
    if task != REGRESSION:
        said, says = (logits_of(one).argmax(dim=2) for one in (outputs, after))
        changed = (said != says).double().mean(dim=1)
        found["changed"] = spread_out(changed[there].tolist(), there, len(outputs))
    return found | ({"not_run": " ".join(refused)} if refused else {})


@torch.no_grad()
def _predict(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    device = next(model.parameters()).device
    parts = x.batches(_AT_ONCE, device) if isinstance(x, Streamed) else (one.to(device) for one in x.split(_AT_ONCE))
    return torch.cat([model(one) for one in parts])
