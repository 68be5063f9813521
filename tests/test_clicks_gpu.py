"""The click models as a captured CUDA graph: what is said before each step is a plain loop's, and repeats bitwise."""

import pytest
import torch

import softknee as sk
from click_streams import plain_stream, stream_model
from softknee.lab.clicks import click_model
from softknee.lab.data.criteo import BUCKETS

pytestmark = [pytest.mark.gpu]
FIT = {"epochs": 1, "batch": 16, "loss": "bce_with_logits"}
STREAM = {"lr": 0.1, "optimizer": "adagrad", "initial_accumulator_value": 0.1, "shuffle": 32, "progressive": True}


def rows(count=90):
    random = torch.Generator().manual_seed(0)
    buckets = [torch.randint(n, (count, 1), generator=random).float() for n in BUCKETS]
    x = torch.cat([torch.randn(count, 13, generator=random), *buckets], dim=1)
    return x, (x[:, 0] > 0).long()


@pytest.mark.parametrize("norm", [None, 1.0], ids=["free", "normed"])
def test_progressive_predictions_are_those_of_a_plain_loop(norm):
    x, y = rows()
    results = [
        sk.train.Replicas(lambda seed: stream_model(seed, norm), count=3, share_init=True, device="cuda").fit(
            x, y, **FIT, **STREAM
        )
        for _ in range(2)
    ]
    predictions, losses = plain_stream(x, y, seeds=[0, 1, 2], shared=True, window=32, batch=16, lr=0.1, norm=norm)
    torch.testing.assert_close(results[0].progressive_predictions.squeeze(2).cpu(), predictions, rtol=5e-3, atol=5e-3)
    torch.testing.assert_close(results[0].losses, losses, rtol=5e-3, atol=5e-4)
    assert torch.equal(results[0].progressive_predictions, results[1].progressive_predictions)


def test_the_papers_model_trains_on_a_gpu():
    x, y = rows(64)
    replicas = sk.train.Replicas(lambda seed: click_model(seed=seed), count=3, device="cuda")
    replicas.fit(x, y, **FIT, lr=1e-3, optimizer="adam")
    alone = sk.train.OneByOne(lambda seed: click_model(seed=seed), count=3, device="cuda")
    alone.fit(x, y, **FIT, lr=1e-3, optimizer="adam")
    torch.testing.assert_close(replicas.losses, alone.losses, rtol=5e-3, atol=5e-4)
