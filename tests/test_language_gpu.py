"""The language study's step as a CUDA graph on a real device: what it does is what single steps do."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from language_files import TEXT
from softknee.lab.language_models import Batches, Recipe, build, train, validation_loss
from softknee.train import fit

pytestmark = [
    pytest.mark.gpu,
]


@pytest.mark.parametrize(("name", "harden"), [("gelu", False), ("lambda_gelu", False), ("lambda_gelu", True)])
def test_recorded_steps_are_single_steps(name: str, harden: bool) -> None:
    """Also where hardening freezes parameters on the way, so that the step is recorded anew."""
    losses = {}
    for recorded in (False, True):
        recipe = Recipe(
            layers=2, width=32, heads=2, context=12, batch=8, steps=40, warmup=4, dropout=0.0, recorded=recorded
        )
        knobs = {"learn": True} if name == "lambda_gelu" else {}
        model = build(recipe, vocabulary=TEXT.vocabulary, seed=0, activation=name, knobs=knobs).cuda()
        data = TEXT.to("cuda")
        before = validation_loss(model, data, recipe)
        train(model, data, recipe, seed=0, harden=harden)
        losses[recorded] = validation_loss(model, data, recipe)
        assert losses[recorded] < before - 0.1
    assert losses[True] == pytest.approx(losses[False], abs=0.02)


def test_dropout_differs_from_replay_to_replay() -> None:
    model, data, seen = nn.Linear(1, 1).cuda(), TEXT.to("cuda"), torch.zeros(64, device="cuda")

    def loss_of(model: nn.Module, pieces: Tensor) -> Tensor:
        dropped = F.dropout(torch.ones(64, device="cuda"), 0.5)
        seen.copy_(dropped)
        return model(dropped.mean().view(1, 1)).sum() + 0 * pieces.sum()

    kept, weights = [], [model.weight.item()]

    def look(_: int) -> None:
        kept.append(seen.clone())
        weights.append(model.weight.item())

    adamw = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True, capturable=True)
    batches = Batches(data.train, Recipe(), seed=0)
    losses = fit(model, batches, loss_of, optimizer=adamw, steps=8, clip=1.0, capture=True, on_step=look)
    assert len({tuple(each.tolist()) for each in kept}) == 8
    assert all(after < before for before, after in pairwise(weights))
    assert len(losses) == 8
    assert losses.isfinite().all()
