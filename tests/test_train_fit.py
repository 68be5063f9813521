"""`train.fit` is the loop one would write by hand, to the bit; what cannot be trained is refused with a sentence."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import fit_processes
import processes
import softknee as sk
from softknee.errors import InputError, ParameterError

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > X[:, 1]).long()
BATCHES = list(zip(X.split(4), Y.split(4), strict=True))


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), sk.nn.SmeLU(learn=True), nn.Dropout(0.2), nn.Linear(8, 2))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(sk.param_groups(model, lr=0.05, weight_decay=0.1))


def test_it_is_the_loop_written_by_hand():
    """Five batches in groups of two: the last step of an epoch has one; in bfloat16, clipped, with a schedule."""
    trained, plain, schedule = network(), network(), sk.train.cosine(warmup=0.2)
    optimizer, seen = adam(trained), []
    torch.manual_seed(2)
    losses = sk.train.fit(
        trained, BATCHES, "cross_entropy", optimizer=optimizer, epochs=2, schedule=schedule, accumulate=2, clip=0.3,
        precision="bfloat16", before_step=lambda step: seen.append(-step), on_step=seen.append,
        on_epoch=lambda epoch: seen.append(100 * epoch),
    )  # fmt: skip
    expected, by_hand, full = [], adam(plain), [group["lr"] for group in optimizer.param_groups]
    torch.manual_seed(2)
    for step in range(6):
        parts = BATCHES[2 * (step % 3) :][:2]
        by_hand.zero_grad()
        total = torch.zeros(())
        for x, y in parts:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(plain(x), y) / len(parts)
            loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.3)
        for group, rate in zip(by_hand.param_groups, full, strict=True):
            group["lr"] = rate * schedule(step / 6)
        by_hand.step()
        expected.append(total)
    assert norm > 0.3
    # Products in bfloat16 need not have the same bits twice: torch 2.6 chooses their kernel by where the memory lies.
    torch.testing.assert_close(losses, torch.stack(expected), rtol=2e-3, atol=0)
    for ours, theirs in zip(trained.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-3)
    assert seen == [-1, 1, -2, 2, -3, 3, 100, -4, 4, -5, 5, -6, 6, 200]
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.05, 0.05 * sk.surgery.groups.LR_SCALE]


def test_what_the_optimizer_leaves_alone_has_no_part_in_the_norm_that_is_clipped():
    trained, plain = network(), network()
    torch.manual_seed(2)
    sk.train.fit(trained, BATCHES, "cross_entropy", optimizer=torch.optim.SGD(trained[3].parameters(), 0.1), clip=0.2)
    by_hand = torch.optim.SGD(plain[3].parameters(), 0.1)
    torch.manual_seed(2)
    norms = []
    for x, y in BATCHES:
        plain.zero_grad()
        F.cross_entropy(plain(x), y).backward()
        norms.append(nn.utils.clip_grad_norm_(plain[3].parameters(), 0.2))
        by_hand.step()
    assert max(norms) > 0.2
    for ours, theirs in zip(trained.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_steps_are_counted_over_epochs_and_batches_may_be_anything():
    model, seen = network(), []

    def loss(model: nn.Module, batch: dict) -> torch.Tensor:
        return model(batch["images"]).square().mean()

    batches = [{"images": x, "name": "text stays"} for x in X.split(5)]
    fitted = sk.train.fit(model, batches, loss, optimizer=adam(model), steps=6, capture=True, on_epoch=seen.append)
    assert (len(fitted), seen) == (6, [1, 2])
    endless = iter(lambda: BATCHES[0], None)
    assert len(sk.train.fit(model, endless, "cross_entropy", optimizer=adam(model), steps=3)) == 3
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"steps": 0}, ParameterError, "steps must be a whole number"),
        ({"accumulate": 0}, ParameterError, "accumulate must be"),
        ({"clip": 0.0}, ParameterError, "clip must be"),
        ({"capture": True, "fabric": object()}, ParameterError, "cannot be recorded"),
        ({"precision": "half"}, ParameterError, "precision must be"),
        ({"loss": "crossentropy"}, ParameterError, "Did you mean 'cross_entropy'"),
        ({"loss": lambda model, batch: model(batch[0])}, InputError, "take its mean"),
        ({"batches": []}, InputError, "no batches"),
        ({"batches": iter(BATCHES), "steps": 9}, InputError, "yields its batches only once"),
        ({"batches": iter(BATCHES), "schedule": sk.train.cosine()}, InputError, "pass steps="),
    ],
)
def test_what_cannot_be_trained_is_refused(given: dict, kind: type[Exception], says: str):
    model = network()
    optimizer = adam(model)
    rates = [group["lr"] for group in optimizer.param_groups]
    arguments = {"batches": BATCHES, "loss": "cross_entropy", "schedule": None, **given}
    with pytest.raises(kind, match=says):
        sk.train.fit(model, arguments.pop("batches"), arguments.pop("loss"), optimizer=optimizer, **arguments)
    assert [group["lr"] for group in optimizer.param_groups] == rates


@pytest.mark.slow
@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="This torch was built without gloo.")
def test_two_processes_on_fabric_train_as_one_does(tmp_path: Path):
    """DDP deals out a DataLoader, FSDP2 has batches of its own; with accumulated and clipped gradients."""
    pytest.importorskip("lightning", reason="lightning is not installed")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torchrun = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(fit_processes.WORLD)}
    torchrun |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    processes.run(fit_processes.process, str(tmp_path), environment=torchrun)
    order = torch.arange(24).view(4, 3, 2)  # each process has every second example
    batches = [(fit_processes.X[rows.flatten()], fit_processes.Y[rows.flatten()]) for rows in order]
    expected = fit_processes.train(None, batches)
    for rank in range(fit_processes.WORLD):
        for name, results in torch.load(tmp_path / f"{rank}.pt", weights_only=True).items():
            for result, wanted in zip(results, expected, strict=True):
                torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5, msg=name)
