"""Replicas of networks with SQUAF and with the baselines of its tables: what single models would become."""

import pytest
import torch
from torch import nn

import softknee as sk
from replica_squaf import EACH, FIT, X, Y, mlp
from softknee.train.chain import chain_of


class Inside(nn.Module):
    """No chain: it runs under vmap, as every model does on a GPU."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


@pytest.mark.slow
@EACH
def test_replicas_become_what_single_models_do(name):
    together = sk.train.Replicas(lambda: mlp(name), count=4)
    start = {key: value.clone() for key, value in together.weights().items()}
    assert chain_of(together._skeleton, together._stack.tensors) is not None
    together.fit(X, Y, **FIT)
    singly = sk.train.OneByOne(lambda: mlp(name), count=4).fit(X, Y, **FIT)
    torch.testing.assert_close(together.losses, singly.losses, rtol=2e-4, atol=1e-6)
    for index in range(4):
        ours, theirs = together.model(index).state_dict(), singly.model(index).state_dict()
        for key, value in ours.items():
            torch.testing.assert_close(value, theirs[key], rtol=1e-3, atol=2e-5, msg=f"{key} of replica {index}")
    trained = [key for key, _ in mlp(name).named_parameters() if key.startswith("1.")]
    assert trained
    assert all(not torch.equal(start[key], together.weights()[key]) for key in trained)


@pytest.mark.slow
@EACH
def test_the_chain_is_what_vmap_gives(name):
    direct = sk.train.Replicas(lambda: mlp(name), count=3).fit(X, Y, **FIT)
    under_vmap = sk.train.Replicas(lambda: Inside(mlp(name)), count=3)
    assert chain_of(under_vmap._skeleton, under_vmap._stack.tensors) is None
    torch.testing.assert_close(direct.losses, under_vmap.fit(X, Y, **FIT).losses, rtol=2e-4, atol=1e-6)


def test_random_tables_differ_between_replicas_and_follow_their_seeds():
    tables = sk.train.Replicas(lambda: mlp("squaf"), count=3, seeds=[5, 6, 7]).knobs()["1.z"]
    assert tables.shape == (3, 1, 5)
    assert not torch.equal(tables[0], tables[1])
    assert torch.equal(tables[2], sk.train.Replicas(lambda: mlp("squaf"), count=1, seeds=[7]).knobs()["1.z"][0])


def test_sampled_replicas_draw_by_their_seed_alone():
    def drawn(seeds):
        return sk.train.Replicas(
            lambda: nn.Sequential(nn.Linear(1, 64), sk.nn.SQUAFP(k=4, q=0.5, learn=True), nn.Linear(64, 1)),
            count=len(seeds),
            seeds=seeds,
        ).fit(X, Y, **FIT)

    many, alone = drawn([3, 4, 5]), drawn([5])
    torch.testing.assert_close(many.losses[:, 2:], alone.losses, rtol=1e-4, atol=1e-6)
    act = many._skeleton[1]
    x = torch.full((3, 4000), 0.25)
    q, alpha, z = (torch.tensor(v).expand(3, *([1] * 1)) for v in (0.5, 5.0, 0.0))
    z = torch.arange(9.0).expand(3, 1, 9)
    many._draws.passed.clear()
    first, second = act.run(x, q, alpha, z), act.run(x, q, alpha, z)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    # Halfway between two points each is drawn half of the time; 4000 draws have a standard error of 0.008.
    assert ((first == 4).float().mean(1) - 0.5).abs().max() < 0.04
    assert set(first.unique().tolist()) >= {4.0, 5.0}


def test_a_sampled_layer_on_a_general_grid_is_refused():
    with pytest.raises(sk.errors.InputError, match="general grid"):
        sk.train.Replicas(lambda: nn.Sequential(nn.Linear(1, 2), sk.nn.SQUAFP(grid=[0.0, 1.0], alpha=2.0)), count=2)


def test_convolutions_with_a_table_for_each_channel():
    def make():
        act = sk.nn.SQUAF(k=2, q=0.5, learn=True, per="channel", size=4)
        return nn.Sequential(nn.Conv2d(1, 4, 3), act, nn.Flatten(), nn.Linear(4 * 9, 2))

    x, y = torch.randn(8, 1, 5, 5, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    fit = {"epochs": 2, "batch": 4, "lr": 0.05}
    ours, theirs = (kind(make, count=2).fit(x, y, **fit) for kind in (sk.train.Replicas, sk.train.OneByOne))
    torch.testing.assert_close(ours.losses, theirs.losses, rtol=1e-4, atol=1e-6)


def test_rows_of_polynorm_along_another_dimension():
    def make():
        return nn.Sequential(nn.Linear(3, 4), sk.nn.PolyNorm(row_dim=1), nn.Flatten(), nn.Linear(20, 2))

    x, y = torch.randn(8, 5, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    fit = {"epochs": 2, "batch": 4, "lr": 0.05}
    ours, theirs = (kind(make, count=2).fit(x, y, **fit) for kind in (sk.train.Replicas, sk.train.OneByOne))
    torch.testing.assert_close(ours.losses, theirs.losses, rtol=1e-4, atol=1e-6)
