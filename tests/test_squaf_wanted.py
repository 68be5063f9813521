"""Only the gradients that are asked for are computed: the others cost no operation, and leave no trace."""

from itertools import combinations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import softknee as sk
from helpers import F64, rounding
from softknee.kernels.squaf import layout as flags
from softknee.kernels.squaf import squaf, squaf_sampled
from squaf_reference import inputs, parameters

NAMES = ("x", "q", "alpha", "z")
SUBSETS = [subset for size in range(1, 5) for subset in combinations(NAMES, size)]
CASES = pytest.mark.parametrize(
    ("window", "weights"), [(5, "gaussian"), (None, "gaussian"), (5, "laplacian"), (None, "laplacian")]
)


class Counted(TorchDispatchMode):
    """Counts the operations that compute, by name; below autograd, so those inside our operators are among them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().split("::")[1].split(".")[0]
        self.found[name] = self.found.get(name, 0) + 1
        return func(*args, **kwargs or {})


def gradients(subset, *, run=squaf, shape=(3, 1), **options):
    tensors = {"x": inputs(4, 3, 6)} | parameters(shape)
    tensors = {name: item.requires_grad_(name in subset) for name, item in tensors.items()}
    x = tensors.pop("x")
    out = run(x, **tensors, **options)
    tensors = {"x": x} | tensors
    return torch.autograd.grad(out, [tensors[name] for name in subset], inputs(4, 3, 6, seed=7))


def operations(wanted: int, *, window: int, laplacian: bool) -> dict[str, int]:
    from softknee.kernels.squaf import eager
    from softknee.kernels.squaf.layout import arrange

    x, p = inputs(500), parameters()
    layout = arrange(x, parameter_shape=p["q"].shape)
    rows = layout.fold_parameter(p["q"]), layout.fold_parameter(p["alpha"]), layout.fold_parameter(p["z"], table=True)
    with Counted() as counted:
        actual = eager.backward(
            layout.fold(x), layout.fold(x), *rows, layout=layout, window=window, laplacian=laplacian, wanted=wanted
        )
    assert [item is not None for item in actual] == [bool(wanted & bit) for bit in (1, 2, 4, 8)]
    return counted.found


@CASES
def test_every_choice_gives_the_gradients_of_all_of_them(window, weights):
    everything = dict(zip(NAMES, gradients(NAMES, window=window, weights=weights), strict=True))
    for subset in SUBSETS:
        for name, result in zip(subset, gradients(subset, window=window, weights=weights), strict=True):
            whole = everything[name]
            assert (result - whole).abs().max() <= rounding(F64) * whole.abs().max(), (subset, name)


@pytest.mark.parametrize("subset", SUBSETS, ids="-".join)
def test_autograd_asks_for_what_it_needs(subset, monkeypatch):
    asked = []
    real = torch.ops.softknee.squaf_backward.default

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is real:
                asked.append(args[7] if len(args) > 7 else flags.EVERY)  # a default is left out
            return func(*args, **kwargs or {})

    wanted = flags.wanted_of([name in subset for name in NAMES])
    with Watch():
        gradients(subset)
        gradients(subset, run=squaf_sampled)
        torch.func.vmap(lambda x, q, alpha, z: squaf(x, q=q, alpha=alpha, z=z), in_dims=(0, None, None, None))(
            *[item.requires_grad_(name in subset) for name, item in ({"x": inputs(2, 5)} | parameters()).items()]
        ).sum().backward()
    assert asked == [wanted] * 3


@CASES
def test_less_is_computed_where_less_is_wanted(window, weights):
    how = {"window": window or 0, "laplacian": weights == "laplacian"}
    every = operations(flags.EVERY, **how)
    by = {name: operations(flag, **how) for name, flag in zip(NAMES, (1, 2, 4, 8), strict=True)}
    count = {name: sum(match.values()) for name, match in by.items()}
    assert all(item < sum(every.values()) - 5 for item in count.values())
    # No moments for the table alone: not the value, not one of the products; and no table's sums for the others.
    moments = "sub", "mul", "sum"
    assert all(by["z"].get(name, 0) < by["x"][name] for name in moments)
    if window:
        assert "index_add_" in every
        assert "gather" in every
        assert "index_add_" in by["z"]
        assert "gather" not in by["z"]
        assert all("index_add_" not in by[name] and "gather" in by[name] for name in ("x", "q", "alpha"))
    both = sum(operations(flags.BY_Q | flags.BY_ALPHA, **how).values())
    assert max(count["q"], count["alpha"]) < both < sum(every.values())


def test_a_frozen_layer_makes_the_slope_alone():
    layer, x = sk.nn.SQUAF(k=16, q=0.25), torch.randn(100, requires_grad=True)
    out = layer(x).sum()
    with Counted() as counted:
        out.backward()
    assert "index_add_" not in counted.found
    assert x.grad is not None
    layer.requires_grad_(True)  # buffers stay buffers
    trained = sk.nn.SQUAF(k=16, q=0.25, learn=True)
    trained.z.requires_grad_(False)
    trained(torch.randn(100)).sum().backward()
    assert trained.z.grad is None
    assert trained.raw_q.grad is not None
    assert trained.raw_alpha.grad is not None


def test_second_derivatives_of_a_part():
    x, p = inputs(6).requires_grad_(), parameters()
    p["z"].requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x, z: squaf(x, q=p["q"], alpha=p["alpha"], z=z), [x, p["z"]])
    assert torch.autograd.gradgradcheck(lambda x: squaf(x, **{n: t.detach() for n, t in p.items()}), [x])
    value = torch.func.grad(lambda x: squaf(x, **p).sum())
    torch.testing.assert_close(
        torch.func.jacrev(value)(x).diagonal(),
        torch.func.vmap(torch.func.grad(torch.func.grad(lambda one: squaf(one.reshape(1), **p).sum())))(x),
    )
