"""RatePenalty: the loss it adds, what it does to training, and every way in which a forward pass can come about."""

import copy
import io

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.kernels.squaf.marginal import entropy_in_bits, squaf_marginal
from softknee.nn.rate import marginal_of


def net(dtype: torch.dtype = torch.float32, *, learn: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        nn.Linear(2, 8),
        sk.nn.SQUAF(k=4, q=0.25, learn=learn),
        nn.Linear(8, 3),
        sk.nn.SQUAF(k=8, q=0.1, learn=learn),
        nn.Linear(3, 1),
    ]
    return nn.Sequential(*layers).to(dtype)


def data(count: int = 16, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(1)).to(dtype)


def by_hand(model: nn.Sequential, x: Tensor) -> Tensor:
    """Bits per activation, in plain operations that keep every probability."""
    bits, elements = torch.zeros(()), 0
    for layer in model:
        if isinstance(layer, sk.nn.SQUAF):
            steps = torch.arange(-layer.k, layer.k + 1)
            centre = (x / layer.q).round().clamp(-layer.k, layer.k).detach()
            logits = -layer.alpha * (x[..., None] - layer.q * steps).square()
            logits = logits.masked_fill((steps - centre[..., None]).abs() > 2, -torch.inf)
            p = torch.softmax(logits, -1).flatten(0, -2).mean(0)
            bits = bits - x.numel() * (p[p > 0] * p[p > 0].log2()).sum()
            elements += x.numel()
        x = layer(x)
    return bits / elements


def gradients(model: nn.Module, value: Tensor) -> list[Tensor]:
    asked = [p for name, p in model.named_parameters() if not name.startswith("4")]  # the last layer has no say
    return list(torch.autograd.grad(value, asked, allow_unused=True))


def alike(ours: list[Tensor], theirs: list[Tensor], **tolerance) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, **tolerance)


def test_one_line_gives_the_mean_rate_and_its_gradient():
    model = net()
    penalty = sk.nn.RatePenalty(model, weight=0.3)
    model(data())
    value = penalty()
    truth = 0.3 * by_hand(model, data())
    penalty.clear()
    torch.testing.assert_close(value, truth)
    assert value.dtype == torch.float32
    alike(gradients(model, value), gradients(model, truth), rtol=1e-4, atol=1e-6)
    assert {path: seen.elements for path, seen in penalty.observed.items()} == {"1": 128, "3": 48}
    without_batches = sk.measure.rate(model)
    assert without_batches.bits == pytest.approx(value.item() / 0.3, rel=1e-6)
    assert without_batches.outside is None


def test_gradient_equals_finite_differences():
    model = net(torch.float64)
    penalty = sk.nn.RatePenalty(model, weight=1.0)
    names = [name for name, _ in model.named_parameters() if name.startswith(("0", "1"))]
    values = [model.get_parameter(name).detach().requires_grad_() for name in names]

    def value(*tensors: Tensor) -> Tensor:
        torch.func.functional_call(model, dict(zip(names, tensors, strict=True)), data(5, torch.float64))
        return penalty()

    assert torch.autograd.gradcheck(value, values)


@pytest.mark.slow
def test_the_rate_falls_with_the_weight():
    x = torch.linspace(-1, 1, 64)[:, None]
    results = []
    for weight in (0.0, 0.02, 0.2):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(1, 16), sk.nn.SQUAF(k=8, q=0.25, learn=True), nn.Linear(16, 1))
        penalty = sk.nn.RatePenalty(model, weight=weight)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(50):
            optimiser.zero_grad()
            task = (model(x) - torch.sin(3 * x)).square().mean()
            (task + penalty()).backward()
            optimiser.step()
        penalty.close()
        results.append((sk.measure.rate(model, [x]).bits, task.item()))
    rates, tasks = zip(*results, strict=True)
    assert rates[0] > rates[1] + 0.1
    assert rates[1] > rates[2] + 0.3
    assert tasks[0] < tasks[2]


def test_several_passes_are_one_layer_with_more_elements():
    model = net()
    penalty = sk.nn.RatePenalty(model, weight=1.0)
    model(data()[:10])
    model(data()[10:])
    in_two = penalty()
    model(data())
    in_one = penalty()
    torch.testing.assert_close(in_two, in_one)
    alike(gradients(model, in_two), gradients(model, in_one), rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="No forward pass with gradient"):
        penalty()


def test_a_module_used_twice_is_one_layer():
    act = sk.nn.SQUAF(k=4, q=0.5)
    model = nn.Sequential(nn.Linear(2, 6), act, nn.Linear(6, 2), act)
    penalty = sk.nn.RatePenalty(model, weight=1.0)
    model(data())
    value = penalty()
    inputs = torch.cat([model[0](data()).flatten(), model[:3](data()).flatten()])
    truth = entropy_in_bits(squaf_marginal(inputs, q=act.q, alpha=act.alpha, points=9))
    torch.testing.assert_close(value, truth)


def test_validation_does_not_enter_the_next_step():
    model = net()
    penalty = sk.nn.RatePenalty(model, weight=1.0)
    model(data())
    alone = penalty().item()
    with torch.no_grad():
        model.eval()(3 * data())
        model(0.1 * data())
    model.train()(data())
    assert penalty().item() == alone
    # And validation has a penalty of its own, over all of its passes.
    with torch.no_grad():
        model.eval()(data()[:4])
        model(data()[4:])
        value = penalty()
    assert value.item() == pytest.approx(alone)
    assert not value.requires_grad
    # Eval mode with gradient (frozen norms) trains like train mode.
    model(data())
    assert penalty().requires_grad


@pytest.mark.parametrize("kind", ["whole", "parts"])
def test_checkpointing_counts_once_and_gives_the_same_gradient(kind):
    model = net()
    penalty = sk.nn.RatePenalty(model, weight=0.5)
    (model(data()).sum() + penalty()).backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for _ in range(2):  # a second step: nothing of the first was left behind
        model.zero_grad()
        if kind == "whole":
            out = checkpoint(model, data(), use_reentrant=False)
        else:
            out = checkpoint(model[2:], checkpoint(model[:2], data(), use_reentrant=False), use_reentrant=False)
        value = penalty()
        assert sum(seen.elements for seen in penalty.observed.values()) == 176
        (out.sum() + value).backward()
        alike([p.grad for p in model.parameters()], plain)
    with pytest.raises(InputError, match="No forward pass"):
        penalty()


def test_reentrant_checkpointing_is_refused():
    model = net()
    penalty = sk.nn.RatePenalty(model, weight=0.5)
    checkpoint(model[2:], model[:2](data()), use_reentrant=True)
    with pytest.raises(InputError, match=r"'3' ran without gradient.*use_reentrant=False"):
        penalty()


# The compiler looks at .grad of what passes between two graphs, and hides the warning itself where it is not an error.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_gives_the_same_numbers():
    model = net()
    penalty = sk.nn.RatePenalty(model, weight=0.5)
    model(data())
    plain = penalty()
    truth = gradients(model, plain)
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(2):
        compiled(data())
        value = penalty()
        torch.testing.assert_close(value, plain)
        alike(gradients(model, value), truth)
    # A measurement puts its hooks in later, when the compiler no longer looks for them; it does without the compiler.
    assert sk.measure.rate(compiled, [data()]).bits == pytest.approx(plain.item() / 0.5, rel=1e-6)


def fresh(model: nn.Sequential) -> Tensor:
    with sk.nn.RatePenalty(model, weight=0.5) as penalty:
        model(data())
        return penalty()


def test_ddp_gives_the_gradient_of_the_model_alone():
    model = net()
    alone = gradients(model, fresh(model))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(model)
        penalty = sk.nn.RatePenalty(wrapped, weight=0.5)
        (0 * wrapped(data()).sum() + penalty()).backward()
        results = [p.grad for name, p in model.named_parameters() if not name.startswith("4")]
        alone = [torch.zeros_like(f) if a is None else a for a, f in zip(alone, results, strict=True)]
        alike(results, alone)
        assert sk.measure.rate(wrapped).sites[0].path == "1"
    finally:
        dist.destroy_process_group()


def test_copies_are_not_watched_and_close_takes_the_hooks_away():
    model = net()
    penalty = sk.nn.RatePenalty(model, weight=0.5)
    model(data())
    average = copy.deepcopy(model)  # while the penalty holds a graph
    torch.save(model, io.BytesIO())
    average(data())
    value = penalty()
    assert sum(seen.elements for seen in penalty.observed.values()) == 176
    torch.testing.assert_close(value, fresh(model))
    penalty.close()
    model(data())
    with pytest.raises(InputError, match="it is closed"):
        penalty()
    assert not any(module._forward_pre_hooks for module in model.modules())
    forgotten = sk.nn.RatePenalty(model, weight=0.5)
    del forgotten
    model(data())  # hooks of a penalty that is gone do nothing


def test_layers_that_are_swapped_take_the_penalty_along_or_have_no_rate():
    model = net()
    penalty = sk.nn.RatePenalty(model, weight=0.5)
    sk.swap_(model, "squaf", where="1", k=6, q=0.2)
    model(data())
    torch.testing.assert_close(penalty(), fresh(model))
    assert [site.bits for site in sk.measure.rate(model).sites] == [seen.bits for seen in penalty.observed.values()]
    penalty.clear()  # of what `fresh` ran
    sk.swap_(model, "relu", where="3")
    model(data())
    penalty()
    assert list(penalty.observed) == ["1"]
    sk.swap_(model, "relu", where="1")
    model(data())
    with pytest.raises(InputError, match="No forward pass with gradient reached a SQUAF layer"):
        penalty()


def test_sampling_layers_train_their_rate_as_well():
    model = net()
    soft = fresh(model)
    penalty = sk.nn.RatePenalty(model, weight=0.5)
    sk.squaf_mode_(model, "sampled")  # the same modules, so that the hooks stay
    model(data())
    value = penalty()
    assert value.requires_grad
    # The first layer sees the same inputs, those of the second are drawn.
    assert penalty.observed["1"].bits > 1
    assert value.item() == pytest.approx(soft.item(), rel=0.1)


def test_half_precision_keeps_a_float32_penalty():
    model = net(learn=False).bfloat16()
    penalty = sk.nn.RatePenalty(model, weight=0.5)
    model(data().bfloat16())
    value = penalty()
    assert value.dtype == torch.float32
    (slope,) = torch.autograd.grad(value, model[0].weight)
    assert slope.dtype == torch.bfloat16
    assert slope.abs().sum() > 0


def test_what_cannot_be_done_is_said():
    with pytest.raises(InputError, match="no SQUAF layer"):
        sk.nn.RatePenalty(nn.Linear(1, 1), weight=1.0)
    with pytest.raises(ParameterError, match="weight must be a finite number"):
        sk.nn.RatePenalty(net(), weight=-1)
    model = net()
    penalty = sk.nn.RatePenalty(model, weight=1.0)
    with pytest.raises(InputError, match=r"'1' inside a transform of torch\.func"):
        torch.func.vmap(model)(data()[None])
    penalty.close()
    # The way that the error names: the rate as part of the function.
    act = model[1]
    mapped = torch.func.vmap(lambda x: entropy_in_bits(marginal_of(act, x)))(torch.stack([data(), 2 * data()]))
    torch.testing.assert_close(mapped[1], entropy_in_bits(marginal_of(act, 2 * data())))
