"""Click models: small files, counts of parameters, and training on a stream, one example after another."""

import math
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import softknee as sk
from data_files import write_criteo
from softknee.lab.clicks import click_model
from softknee.train.random_keys import order

FEW = {"C6": 0, "C9": 3, "C20": 2}  # columns of 28, 14 and 12 buckets
# Equation 23 of the SmeLU paper: the size of each column's embedding, 0 for one-hots.
EMBEDDINGS = [3, 9, 29, 11, 17, 0, 14, 4, 0, 12, 19, 24, 29, 0, 13, 25, 0, 8, 29, 0, 22, 0, 0, 31, 0, 29]


def write_small_criteo(folder: Path) -> Path:
    """A data folder with small files of Criteo's format."""
    for part, count in (("train", 96), ("dev", 24), ("test", 24)):
        write_criteo(folder / "criteo" / f"dac8k_{part}.tsv", count, seed=len(part))
    return folder


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def dense(*widths: int) -> int:
    return sum((wide + 1) * narrow for wide, narrow in pairwise(widths))


def plain_stream(x, y, *, seeds, shared, window, batch, lr, norm=None):
    """Each model alone with torch's own optimiser: what it says of each example before it is trained on it."""
    said = torch.full((len(seeds), len(x)), math.nan)
    losses = []
    for place, seed in enumerate(seeds):
        model = stream_model(seeds[0] if shared else seed, norm=norm)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=lr, initial_accumulator_value=0.1)
        (own,) = order(seeds=[seed], epoch=0, length=len(x), window=window)
        losses.append([])
        for chosen in own.split(batch):
            out = model(x[chosen]).squeeze(1)
            said[place, chosen] = out.detach()
            loss = F.binary_cross_entropy_with_logits(out, y[chosen].float())
            losses[-1].append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return said, torch.tensor(losses).T


def stream_model(seed, norm=None):
    return click_model(
        hidden=(8, 4), embed=FEW, spread=1.0, weight_norm=norm, activation=lambda: sk.nn.SmeLU(beta=0.5), seed=seed
    )
