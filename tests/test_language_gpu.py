"""The language study's step as a CUDA graph on a real device: what it does is what single steps do."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from language_files import TEXT
from softknee.lab.language_models import Batches, Recipe, Steps, build, train, validation_loss

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
        losses[recorded] = validation_loss(train(model, data, recipe, seed=0, harden=harden).model, data, recipe)
        assert losses[recorded] < before - 0.1
    assert losses[True] == pytest.approx(losses[False], abs=0.02)


def test_dropout_differs_from_replay_to_replay() -> None:
    model, data, seen = nn.Linear(1, 1).cuda(), TEXT.to("cuda"), torch.zeros(64, device="cuda")

    def loss_of(model: nn.Module, pieces: Tensor) -> Tensor:
        dropped = F.dropout(torch.ones(64, device="cuda"), 0.5)
        seen.copy_(dropped)
        return model(dropped.mean().view(1, 1)).sum() + 0 * pieces.sum()

    steps = Steps(model, Batches(data.train, Recipe(), seed=0), loss_of, lr=0.1)
    kept = []
    for _ in range(8):
        before = model.weight.item()
        steps.step()
        kept.append(seen.clone())
        assert model.weight.item() < before
    assert len({tuple(one.tolist()) for one in kept}) == 8
