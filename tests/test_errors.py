"""Everything that is refused is refused with the right kind of error and a sentence with cause and cure."""

import inspect
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import sympy
import torch

import softknee as sk
from softknee import DefinitionError, InputError, ParameterError, UnknownActivationError
from softknee.spec import Activation, Claims, Param, Positive, x

X = torch.zeros(2, 3, 4)


def make(name: str, **options: object):
    return lambda: sk.nn.make(name, **options)


def call(name: str, *arguments: object, **values: object):
    return lambda: sk.get(name)(*(arguments or (X,)), **values)


def broken(formula: sympy.Expr, **options: object):
    return lambda: Activation("broken", formula, **options)(X)


# What is done, the error and its Python kind, and words of the cause and of the cure.
REFUSED = {
    "unknown name": (
        lambda: sk.get("sreluu"),
        UnknownActivationError,
        KeyError,
        ["'sreluu'", "Did you mean 'srelu'", "names()"],
    ),
    "nothing near": (lambda: sk.get("qqqqq"), UnknownActivationError, KeyError, ["'qqqqq'", "register()"]),
    "no name": (lambda: sk.get(3), UnknownActivationError, KeyError, ["by name", "int"]),
    "unknown to make": (make("smelou"), UnknownActivationError, KeyError, ["'smelou'", "'smelu'"]),
    "misspelt parameter": (call("srelu", dleta=1.0), ParameterError, ValueError, ["'dleta'", "Did you mean 'delta'"]),
    "misspelt in a module": (make("smelu", bete=1.0), ParameterError, ValueError, ["'bete'", "Did you mean 'beta'"]),
    "parameter of none": (call("relu", beta=1.0), ParameterError, ValueError, ["relu", "no parameters"]),
    "zero width": (call("srelu", delta=0), ParameterError, ValueError, ["delta", "above 0", "0 was given"]),
    "negative width": (make("srelu", delta=-1.0), ParameterError, ValueError, ["above 0", "-1.0 was given"]),
    "too narrow to learn": (
        make("srelu", delta=1e-20, learn=True),
        ParameterError,
        ValueError,
        ["learned", "2^-40", "1e-20"],
    ),
    "nan": (make("smelu", beta=math.nan), ParameterError, ValueError, ["beta", "nan was given"]),
    "nan real": (make("prelu", slope=math.nan), ParameterError, ValueError, ["slope", "finite", "nan was given"]),
    "infinite": (call("gelu", beta=math.inf), ParameterError, ValueError, ["finite", "inf was given"]),
    "lambda below 1": (make("lambda_gelu", lam=0.5), ParameterError, ValueError, ["lam", "at least 1", "0.5"]),
    "learned lambda 1": (make("lambda_gelu", lam=1.0, learn=True), ParameterError, ValueError, ["lam", "above 1"]),
    "eps out of range": (call("crrelu_exact", eps=1.0), ParameterError, ValueError, ["eps", "strictly between", "1"]),
    "temperature": (make("lambda_gelu", temperature=0.0), ParameterError, ValueError, ["temperature", "above 0"]),
    "temperature elsewhere": (make("smelu", temperature=1.0), ParameterError, ValueError, ["temperature", "beta"]),
    "not a number": (make("smelu", beta="wide"), ParameterError, ValueError, ["beta", "number or a tensor", "str"]),
    "bad tensor": (
        make("smelu", beta=torch.tensor([1.0, -1.0]), per="channel", size=2),
        ParameterError,
        ValueError,
        ["-1.0"],
    ),
    "bad set_": (lambda: sk.nn.SReLU().set_(delta=-1.0), ParameterError, ValueError, ["delta", "above 0"]),
    "set_ of nothing": (lambda: sk.nn.SReLU().set_(beta=1.0), ParameterError, ValueError, ["'beta'", "delta"]),
    "bad learn": (make("smelu", learn="bta"), ParameterError, ValueError, ["'bta'", "Did you mean 'beta'"]),
    "nothing to learn": (make("relu", learn="beta"), ParameterError, ValueError, ["nothing to learn"]),
    "bad per": (make("smelu", per="chanel", size=3), ParameterError, ValueError, ["per", "Did you mean 'channel'"]),
    "no size": (make("smelu", per="channel"), ParameterError, ValueError, ["size=", "number of channels"]),
    "bad size": (make("smelu", per="neuron", size=(0, 3)), ParameterError, ValueError, ["size=", "trailing shape"]),
    "two sizes": (make("smelu", per="channel", size=(2, 3)), ParameterError, ValueError, ["number of channels"]),
    "size of a layer": (make("smelu", size=3), ParameterError, ValueError, ["per='layer'", "leave size out"]),
    "integer dtype": (make("smelu", dtype=torch.int64), ParameterError, ValueError, ["floating-point", "int64"]),
    "wrong channels": (
        lambda: make("smelu", per="channel", size=5, learn=True)()(X),
        ParameterError,
        ValueError,
        ["5 channels", "dim="],
    ),
    "no such dim": (
        lambda: make("smelu", per="channel", size=3, dim=3, learn=True)()(X),
        ParameterError,
        ValueError,
        ["dimension 3", "dim="],
    ),
    "wrong neurons": (
        lambda: make("smelu", per="neuron", size=5, learn=True)()(X),
        ParameterError,
        ValueError,
        ["(5,)", "broadcast"],
    ),
    "wrong shape": (call("smelu", beta=torch.ones(7)), ParameterError, ValueError, ["(7,)", "(2, 3, 4)"]),
    "too many dims": (call("smelu", beta=torch.ones(2, 2, 3, 4)), ParameterError, ValueError, ["broadcast"]),
    "integer input": (call("srelu", torch.arange(3)), InputError, TypeError, ["floating-point", "int64", "convert"]),
    "complex input": (call("srelu", torch.zeros(2, dtype=torch.complex64)), InputError, TypeError, ["complex64"]),
    "a list": (call("srelu", [1.0]), InputError, TypeError, ["list", "as_tensor"]),
    "a list to a module": (lambda: sk.nn.SReLU()([1.0]), InputError, TypeError, ["list", "as_tensor"]),
    "unknown variant": (
        call("gelu", approximate="erf"),
        ParameterError,
        ValueError,
        ["approximate", "'tanh'", "'erf'"],
    ),
    "a sparse input": (call("srelu", torch.eye(3).to_sparse()), InputError, TypeError, ["sparse", "to_dense"]),
    "a number by place": (lambda: sk.nn.SReLU(0.1), ParameterError, ValueError, ["by name", "0.1", "delta"]),
    "a name by place": (lambda: sk.nn.Pointwise("smelu"), ParameterError, ValueError, ["definition", "sk.nn.make"]),
    "make of a function": (lambda: sk.nn.make(torch.relu), ParameterError, ValueError, ["definition", "names()"]),
    "text for a number": (call("smelu", beta="0.5"), ParameterError, ValueError, ["beta", "number or a tensor", "str"]),
    "None for a number": (call("smelu", beta=None), ParameterError, ValueError, ["number or a tensor", "NoneType"]),
    "True for a number": (make("smelu", beta=True), ParameterError, ValueError, ["number or a tensor", "bool"]),
    "a list of numbers": (call("smelu", beta=[1.0, 2.0]), ParameterError, ValueError, ["list", "torch.Tensor"]),
    "another kind of number": (call("smelu", beta=Fraction(-1, 2)), ParameterError, ValueError, ["above 0", "-1"]),
    "beyond any float": (call("smelu", beta=10**400), ParameterError, ValueError, ["finite"]),
    "beyond float32": (call("smelu", beta=1e300), ParameterError, ValueError, ["1e+300", "float32", "float64 input"]),
    "below float32": (call("smelu", beta=1e-300), ParameterError, ValueError, ["1e-300", "float32"]),
    "a module beyond float32": (make("smelu", beta=1e300), ParameterError, ValueError, ["is inf in torch.float32"]),
    "a module below float16": (
        make("smelu", beta=1e-9, dtype=torch.float16),
        ParameterError,
        ValueError,
        ["is 0 in torch.float16", "another beta"],
    ),
    "a learned width beyond float16": (
        make("smelu", beta=1e5, learn=True, dtype=torch.float16),
        ParameterError,
        ValueError,
        ["anchor_beta", "is inf in torch.float16"],
    ),
    "set_ beyond float32": (lambda: sk.nn.SmeLU().set_(beta=1e39), ParameterError, ValueError, ["is inf in torch"]),
    "half of a wide one": (lambda: sk.nn.SmeLU(beta=1e6).half(), ParameterError, ValueError, ["inf", "torch.autocast"]),
    "half at a bound": (
        lambda: sk.nn.CRReLUExact(eps=0.9999, learn=True).bfloat16(),
        ParameterError,
        ValueError,
        ["eps", "is 1 in torch.bfloat16"],
    ),
    "temperature below float32": (
        make("lambda_gelu", temperature=1e-300, learn=True),
        ParameterError,
        ValueError,
        ["anchor_lam", "is 0 in torch.float32"],
    ),
    "a complex tensor": (call("smelu", beta=torch.tensor(1j)), ParameterError, ValueError, ["real", "complex64"]),
    "a complex start": (make("smelu", beta=torch.tensor(1j)), ParameterError, ValueError, ["real", "complex64"]),
    "a start on meta": (
        make("smelu", beta=torch.ones(1, device="meta")),
        ParameterError,
        ValueError,
        ["meta device", "device='cpu'"],
    ),
    "a fraction of channels": (make("smelu", per="channel", size=64.0), ParameterError, ValueError, ["size=", "64.0"]),
    "a dim in words": (make("smelu", per="channel", size=3, dim="1"), ParameterError, ValueError, ["dim", "'1'"]),
    "learn a number": (make("smelu", learn=5), ParameterError, ValueError, ["learn is True, False, a name", "5"]),
    "learn a list in a list": (make("smelu", learn=[["beta"]]), ParameterError, ValueError, ["no parameter ['beta']"]),
    "dtype as text": (make("smelu", dtype="float32"), ParameterError, ValueError, ["floating-point", "'float32'"]),
    "variants in a list": (call("gelu", approximate=["tanh"]), ParameterError, ValueError, ["approximate", "'none'"]),
    "misspelt for squaf": (make("squaf", alhpa=1.0), ParameterError, ValueError, ["'alhpa'", "Did you mean 'alpha'"]),
    "squaf's z": (make("squaf", z=[1.0, "a", 2.0]), ParameterError, ValueError, ["z is a list", "numbers"]),
    "squaf's grid": (call("squaf", grid=[]), ParameterError, ValueError, ["grid has shape (0,)"]),
    "squaf's tolerance": (make("squaf", window="auto", tolerance="a"), ParameterError, ValueError, ["between 0 and 1"]),
    "squaf's weights": (make("squaf", weights=["gaussian"]), ParameterError, ValueError, ["'gaussian' or"]),
    "explain nothing": (lambda: sk.explain(sk.get("smelu"), 3), InputError, TypeError, ["tensor", "int"]),
    "order in words": (lambda: sk.get("relu").derivative("1"), ParameterError, ValueError, ["whole number", "str"]),
    "order of squaf": (lambda: sk.get("squaf").derivative(1.5), ParameterError, ValueError, ["whole number", "float"]),
    "a text as formula": (lambda: Activation("mine", "x**2"), DefinitionError, ValueError, ["text", "parse"]),
    "a default of its own": (
        lambda: Activation("mine", x, params=(Param("w", -1.0, Positive()),)),
        DefinitionError,
        ValueError,
        ["w of 'mine'", "above 0", "-1.0"],
    ),
    "explain": (lambda: sk.explain(torch.nn.ReLU(), X), InputError, TypeError, ["ReLU", "softknee module"]),
    "negative order": (lambda: sk.get("relu").derivative(-1), ParameterError, ValueError, ["order", "-1"]),
    "derivative by what": (lambda: sk.get("smelu").partial("bata"), ParameterError, ValueError, ["'bata'", "'beta'"]),
    "register a number": (lambda: sk.register(3), DefinitionError, ValueError, ["Activation", "int"]),
    "register twice": (
        lambda: sk.register(Activation("relu", x)),
        DefinitionError,
        ValueError,
        ["'relu'", "replace=True"],
    ),
    "register an alias": (
        lambda: sk.register(Activation("silu", x)),
        DefinitionError,
        ValueError,
        ["'silu'", "replace=True"],
    ),
    "no identifier": (
        lambda: sk.register(Activation("my relu", x)),
        DefinitionError,
        ValueError,
        ["'my relu'", "identifier"],
    ),
    "unknown symbol": (broken(sympy.Symbol("w") * x), DefinitionError, ValueError, ["w", "Declare each as a Param"]),
    "sympy's own x": (broken(sympy.Symbol("x") ** 2), DefinitionError, ValueError, ["x", "softknee.spec.x"]),
    "no default piece": (broken(sympy.Piecewise((x, x > 0))), DefinitionError, ValueError, ["without a value", "True"]),
    "odd power": (broken(x ** sympy.Rational(1, 3)), DefinitionError, ValueError, ["power"]),
    "no lowering": (broken(sympy.gamma(x)), DefinitionError, ValueError, ["gamma", "lowering"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_cause_and_cure(case: str):
    action, kind, builtin, words = REFUSED[case]
    with pytest.raises(sk.SoftkneeError) as caught:
        action()
    assert type(caught.value) is kind or issubclass(type(caught.value), kind)
    assert isinstance(caught.value, builtin)
    sentence = str(caught.value)
    assert sentence.endswith((".", "?"))
    for word in words:
        assert word in sentence, sentence


# What functions of a model need beside it, by the name of the argument.
BESIDE_A_MODEL = {
    "activation": "srelu",
    "activations": torch.optim.Adam,
    "batches": [torch.zeros(2, 3)],
    "count": 2,
    "first": 2.0,
    "last": 1.0,
    "loss": lambda model, batch: model(batch).sum(),
    "lr": 0.1,
    "mode": "step",
    "optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "path": "plan.json",
    "total": 10,
    "weight": 0.1,
    "weights": torch.optim.Adam,
}


def of_a_model(first: str) -> dict[str, Callable[..., object]]:
    """Every public function and class whose first argument has this name, called with what else it needs."""
    results = {}
    for room in (sk, sk.nn, sk.surgery, sk.train, sk.measure):
        for name in room.__all__:
            one = getattr(room, name)
            error = isinstance(one, type) and issubclass(one, Exception)
            takes = inspect.signature(one).parameters if callable(one) and not error else {}
            if next(iter(takes), None) == first:
                needed = [p.name for p in takes.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
                values = {other: BESIDE_A_MODEL[other] for other in needed if other != first}
                results[name] = lambda given, one=one, values=values: one(given, **values)
    return results


def test_what_is_no_model_is_refused_by_every_function_of_a_model():
    functions = of_a_model("model")
    assert {"Hardener", "RatePenalty", "gradient_norms", "swap_", "train_squaf_", "widths_by_depth"} <= set(functions)
    for given, words in (
        ("text", "str was given; build or load the model first"),
        (None, "NoneType was given; build"),
        (torch.nn.Flatten, "the class Flatten was given; make a model of it first."),
        ([torch.nn.Flatten()], "list was given; pass one model, or join several in a torch.nn.ModuleList."),
        ({"weight": X}, "dict was given; build the model, give it these weights with load_state_dict,"),
    ):
        for name, function in functions.items():
            with pytest.raises(InputError) as caught:
                function(given)
            assert f"a torch.nn.Module is needed, and {words}" in str(caught.value).replace("A torch", "a torch"), name
    with pytest.raises(ParameterError, match=r"and str is none; give one of them, such as sk\.nn\.SReLU\(\)"):
        sk.surgery.name_of("text")
    makers = of_a_model("make_model")
    assert set(makers) == {"Ensemble", "OneByOne", "Replicas"}
    for given, kind in (("text", "str"), (torch.nn.Linear(2, 2), "Linear")):
        for function in makers.values():
            with pytest.raises(InputError, match=f"builds a new model, and {kind} was given; give for instance lambda"):
                function(given)


def test_what_is_allowed_is_not_refused():
    """The edges of what is allowed: the checks above refuse no more than they say."""
    sk.nn.make("lambda_gelu", lam=1.0)
    sk.nn.make("lambda_gelu", lam=1.0001, learn=True)
    sk.nn.make("srelu", delta=2.0**-40, learn=True)
    sk.get("smelu")(X, beta=torch.ones(4))
    sk.get("smelu")(X, beta=torch.ones(1, 1, 1, 1))
    sk.get("srelu")(X, delta=1)
    assert Param("w", 1.0, Positive()).constraint.allows(1e-300)
    assert Claims(0, True, 1).lipschitz == 1


def test_a_temperature_is_checked_and_has_no_effect_on_a_value() -> None:
    act, x = sk.get("lambda_gelu"), torch.linspace(-2, 2, 5)
    assert torch.equal(act(x, lam=2.0, temperature=0.3), act(x, lam=2.0))
    with pytest.raises(ParameterError, match="temperature must be a finite number above 0"):
        act(x, lam=2.0, temperature=0.0)
    with pytest.raises(ParameterError, match="gelu has no parameter 'temperature'"):
        sk.get("gelu")(x, temperature=0.1)


def test_a_parameter_on_another_device_is_refused_with_both_named() -> None:
    with pytest.raises(ParameterError, match="delta lies on meta and the input on cpu"):
        sk.nn.SReLU(device="meta")(X)
    with pytest.raises(ParameterError, match="beta lies on cpu and the input on meta"):
        sk.get("smelu")(X.to("meta"), beta=torch.ones(1))


@pytest.mark.parametrize(
    "train", [sk.train.Replicas, sk.train.OneByOne, sk.train.Ensemble], ids=["replicas", "one by one", "ensemble"]
)
def test_a_device_that_is_not_there_is_said_before_anything_is_built(train: Callable[..., object]) -> None:
    def never() -> torch.nn.Module:
        pytest.fail("a model was built")

    with pytest.raises(InputError, match=r"(cuda:99|No CUDA device) .*choose device='cpu'"):
        train(never, count=2, device="cuda:99")
    with pytest.raises(ParameterError, match="'gpu' is no device that torch knows: write it like 'cpu', 'cuda'"):
        train(never, count=2, device="gpu")
