"""What soft tables, functions of rows and baselines refuse: the call, the kind of error, and the cure that it names."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import softknee as sk
from softknee.errors import DefinitionError, InputError, ParameterError
from softknee.kernels.squaf import squaf, squaf_sampled, squaf_step
from softknee.spec import Rowwise
from squaf_reference import parameters
from subjects import SWIGLU, compute_swiglu


def on_tensors(change: dict[str, Any]) -> Callable[[], object]:
    return lambda: squaf(torch.zeros(3), **parameters() | change)


def on_definition(values: dict[str, Any]) -> Callable[[], object]:
    return lambda: sk.get("squaf")(torch.zeros(3), **values)


def on_module(values: dict[str, Any]) -> Callable[[], object]:
    return lambda: sk.nn.make("squaf", **{"k": 4, "q": 0.5, "z": "gelu", **values})


REFUSED = [
    # the function of tensors
    (on_tensors({"weights": "cauchy"}), ParameterError, "'gaussian'"),
    (on_tensors({"window": 4}), ParameterError, "odd number"),
    (on_tensors({"window": 1}), ParameterError, "odd number"),
    (on_tensors({"k": 5}), ParameterError, "asks for 11 values"),
    (on_tensors({"z": torch.zeros(8)}), ParameterError, "3, 5, 7"),
    (on_tensors({"q": torch.ones(7)}), ParameterError, "do not broadcast"),
    (on_tensors({"q": None}), ParameterError, "give q for a uniform grid"),
    (on_tensors({"grid": torch.zeros(9)}), ParameterError, "both q and grid"),
    (on_tensors({"grid": torch.zeros(9), "q": None}), ParameterError, "pass window=None"),
    (on_tensors({"grid": torch.zeros(8), "q": None, "window": None}), ParameterError, "same last dimension"),
    (lambda: squaf(torch.arange(3), **parameters()), InputError, r"x\.float\(\)"),
    (lambda: squaf_sampled(torch.arange(3), **parameters()), InputError, "floating-point"),
    (lambda: squaf_sampled(torch.zeros(3), **parameters(), window=4), ParameterError, "window"),
    (lambda: squaf_step(torch.zeros(3), q=torch.ones(2), z=torch.zeros(2, 9)), ParameterError, "broadcast"),
    (lambda: squaf_step(torch.zeros(3), z=torch.zeros(9)), ParameterError, "spacing"),
    # its definition
    (on_definition({"q": 0.0}), ParameterError, "q must be a finite number above 0, and 0.0"),
    (on_definition({"alpha": -1}), ParameterError, "alpha must be a finite number above 0"),
    (on_definition({"alpha": "soft"}), ParameterError, "'auto'"),
    (on_definition({"k": 0}), ParameterError, "k must be a whole number of at least 1"),
    (on_definition({"k": 2.5}), ParameterError, "k must be a whole number"),
    (on_definition({"window": 4}), ParameterError, "odd number of points"),
    (on_definition({"window": 1}), ParameterError, "odd number of points"),
    (on_definition({"window": "wide"}), ParameterError, "'auto', or None"),
    (on_definition({"weights": "cauchy"}), ParameterError, "'gaussian' or 'laplacian'"),
    (on_definition({"z": [1.0, 2.0]}), ParameterError, "z must have 2k.1 values"),
    (on_definition({"k": 3, "z": [1.0, 2.0, 3.0]}), ParameterError, "asks for 7 values"),
    (on_definition({"z": 1.0}), ParameterError, "name of an activation or a function"),
    (on_definition({"z": lambda points: 1.0}), ParameterError, "one value for each"),
    (on_definition({"windw": 5}), ParameterError, "no argument 'windw'.*Did you mean 'window'"),
    (on_definition({"grid": [0.0, 1.0], "q": 1.0}), ParameterError, "both q and grid"),
    (on_definition({"grid": [0.0, 1.0], "window": 5}), ParameterError, "full sum"),
    (on_definition({"grid": [0.0, 1.0], "alpha": "auto"}), ParameterError, "no spacing"),
    (lambda: sk.get("squaf")(torch.arange(3)), InputError, "floating-point"),
    (lambda: sk.get("squaf")([0.0]), InputError, r"torch\.Tensor"),
    # its module
    (on_module({"q": 0.0}), ParameterError, "q must be a finite number above 0, and 0.0 was given"),
    (on_module({"q": float("nan")}), ParameterError, "q must be a finite number above 0"),
    (on_module({"q": 1e-20, "learn": "q"}), ParameterError, "to be learned, q must be a number between"),
    (
        on_module({"q": torch.tensor([1.0, -1.0]), "per": "channel", "size": 2}),
        ParameterError,
        "q must be .* -1.0 was given",
    ),
    (on_module({"q": "wide"}), ParameterError, "q must be a number or a tensor"),
    (on_module({"alpha": 0}), ParameterError, "alpha must be a finite number above 0"),
    (on_module({"alpha": "soft"}), ParameterError, "'auto'"),
    (on_module({"k": 0}), ParameterError, "k must be a whole number"),
    (on_module({"z": torch.zeros(7)}), ParameterError, r"z must have 2k\+1 = 9 values for k=4"),
    (on_module({"z": torch.full((9,), float("inf"))}), ParameterError, "z must be a finite number"),
    (on_module({"z": torch.zeros(8), "k": None}), ParameterError, "3, 5, 7"),
    (on_module({"window": 4}), ParameterError, "odd number of points"),
    (on_module({"window": 1}), ParameterError, "odd number of points"),
    (on_module({"window": "wide"}), ParameterError, "'auto', or None"),
    (on_module({"window": "auto", "tolerance": 0.0}), ParameterError, "between 0 and 1"),
    (on_module({"weights": "cauchy"}), ParameterError, "'gaussian' or 'laplacian'"),
    (on_module({"learn": "alhpa"}), ParameterError, "Did you mean 'alpha'"),
    (on_module({"learn": "grid"}), ParameterError, "it can learn q, alpha, z"),
    (on_module({"per": "chanel"}), ParameterError, "Did you mean 'channel'"),
    (on_module({"per": "channel"}), ParameterError, "needs size="),
    (on_module({"dtype": torch.int64}), ParameterError, "floating-point type"),
    (on_module({"grid": [0.0, 1.0]}), ParameterError, "both q and grid"),
    (on_module({"grid": [1.0, 0.0], "q": None, "k": None}), ParameterError, "rising order"),
    (
        on_module({"grid": "fine", "q": None, "k": None}),
        ParameterError,
        "grid is a list or a tensor of numbers, and str",
    ),
    (on_module({"learn": None}), ParameterError, "True, False, a name or several"),
    (on_module({"q": 1e-200}), ParameterError, "too small for an alpha"),
    (on_module({"q": 0.003, "dtype": torch.float16}), ParameterError, "alpha=166667 is inf in torch.float16"),
    (
        on_module({"alpha": 5e4, "learn": True, "dtype": torch.float16}),
        ParameterError,
        "anchor_alpha=72134.* is inf in torch.float16",
    ),
    (on_module({"alpha": 1e-60}), ParameterError, "alpha=1e-60 is 0 in torch.float32"),
    (on_module({"z": math.sin}), ParameterError, "for instance torch.sin for math.sin"),
    (on_module({"z": lambda x: sk.get("smelu")(x, beta=-1.0)}), ParameterError, "beta must be"),
    (on_module({"grid": [0.0, 1.0], "q": None, "k": None, "window": 5}), ParameterError, "full sum"),
    # functions of rows
    (lambda: SWIGLU(torch.zeros(4), bta=1.0), ParameterError, "Did you mean 'beta'"),
    (lambda: SWIGLU(torch.zeros(4), beta=-1.0), ParameterError, "above 0, and -1.0"),
    (lambda: SWIGLU(torch.zeros(2, 4), beta=torch.ones(4)), ParameterError, "one value for each row"),
    (lambda: SWIGLU(torch.zeros(2, 4), beta=torch.ones(3, 1)), ParameterError, "does not broadcast"),
    (lambda: SWIGLU(torch.zeros(2, 3)), ParameterError, "even length"),
    (lambda: SWIGLU(torch.zeros(4, dtype=torch.int64)), InputError, "floating-point"),
    (lambda: SWIGLU([1.0]), InputError, r"torch\.Tensor"),
    (lambda: SWIGLU(torch.tensor(1.0)), InputError, "does not have"),
    (lambda: Rowwise("wrong", compute_swiglu, SWIGLU.params)(torch.zeros(4)), DefinitionError, "size_out"),
    (lambda: sk.nn.RowwiseModule(SWIGLU, learn=True, per="neuron", size=6), ParameterError, "a row has one value"),
    (lambda: sk.nn.RowwiseModule(SWIGLU, per="channel", size=6, dim=-1), ParameterError, "a row has one value"),
    # baselines
    (lambda: sk.nn.PolyReLU(order=0), (ParameterError, InputError), "order must be"),
    (lambda: sk.nn.PolyReLU([1.0]), (ParameterError, InputError), "two or more"),
    (lambda: sk.nn.PolyReLU([1.0, 2.0], order=3), (ParameterError, InputError), "order \\+ 1 = 4"),
    (lambda: sk.nn.PolyNorm(eps=0.0), (ParameterError, InputError), "eps must be"),
    (lambda: sk.nn.PolyNorm(per="neuron", size=3), (ParameterError, InputError), "rows along"),
    (lambda: sk.nn.PolyNorm(row_dim=1)(torch.zeros(3)), (ParameterError, InputError), "does not have"),
    (lambda: sk.nn.KAF(points=1), (ParameterError, InputError), "points must be"),
    (lambda: sk.nn.KAF([1.0, 2.0], points=3), (ParameterError, InputError), "3 numbers"),
    (lambda: sk.nn.KAF(3), (ParameterError, InputError), "start must be"),
    (lambda: sk.nn.KAF(lambda x: x[:2]), (ParameterError, InputError), "one finite number"),
    (lambda: sk.nn.KAF(boundary=-1.0), (ParameterError, InputError), "boundary must be"),
    (lambda: sk.nn.DiTAC(cells=1), (ParameterError, InputError), "cells must be"),
    (lambda: sk.nn.DiTAC([1.0], cells=4), (ParameterError, InputError), "cells - 1 = 3"),
    (lambda: sk.nn.DiTAC(low=1.0, high=0.0), (ParameterError, InputError), "low must be below"),
    (lambda: sk.nn.DiTAC(gate="relu"), (ParameterError, InputError), "gate must be"),
    (lambda: sk.nn.PolyReLU(learn="b"), (ParameterError, InputError), "no parameter 'b'"),
]


@pytest.mark.parametrize(("call", "kind", "cure"), REFUSED, ids=range(len(REFUSED)))
def test_refused_with_the_cure(call: Callable[[], object], kind: type[Exception], cure: str):
    with pytest.raises(kind, match=cure) as refused:
        call()
    assert str(refused.value).endswith((".", "?"))
