"""Click models trained on a stream, one example after another."""

import math

import torch
from torch.nn import functional as F

import softknee as sk
from softknee.lab.clicks import click_model
from softknee.train.random_keys import order

FEW = {"C6": 0, "C9": 3, "C20": 2}  # columns of 28, 14 and 12 buckets


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
