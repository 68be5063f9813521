"""The models of a study: for each activation a function from a seed to a new model; one seed gives one set of weights.

>>> from softknee.lab.studies.examples import load_examples
>>> from softknee.lab.studies.recipe import Data, Model
>>> digits = load_examples(Data(set="digits"), flat=True)
>>> smelu = Chosen(name="smelu", label="smelu", values={"beta": 0.5})
>>> make = model_maker(Model(arguments={"hidden": [16]}), smelu, digits)
>>> make(seed=3)
Sequential(
  (0): Linear(in_features=64, out_features=16, bias=True)
  (1): SmeLU(beta=0.5)
  (2): Linear(in_features=16, out_features=10, bias=True)
)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

import softknee as sk

from ...design.gaussian import init_gain
from ...errors import InputError, ParameterError, RecipeError, SoftkneeError
from ...nn.parameters import Parameterised
from ...surgery.modules import activation_modules
from ...surgery.squaf_training import PARTS
from ..builders import PAPERS, build
from ..networks import OF_ROWS, SMALL
from .examples import Examples
from .own_functions import find_function, takes
from .reading import TIMM, module_of
from .recipe import Model
from .trial import Chosen

Maker = Callable[..., nn.Module]


def model_maker(
    model: Model,
    chosen: Chosen,
    examples: Examples,
    *,
    init: str = "default",
    loss: str = "auto",
) -> Maker:
    """A function that takes `seed` and returns a new model, on the CPU, with its weights from that seed alone.

    Args:
        model: what to build, see there.
        chosen: the activation, and where its parameters start.
        examples: their shapes and classes decide the first and the last layer; two of them are run through the first
            model that is made, so that what does not fit is said before anything is trained.
        init: "default" leaves the weights as they were drawn; "matched" scales them, see `match_init_`; "keras" draws
            them anew as Keras does, see `keras_init_`.
        loss: that of the training: "bce_with_logits" takes one output, the log-odds of the second of two classes.

    >>> from softknee.lab.studies.examples import load_examples
    >>> from softknee.lab.studies.recipe import Data
    >>> image = load_examples(Data(set="digits"))
    >>> cnn, relu = Model(build="cnn", arguments={"channels": [4]}), Chosen(name="relu", label="relu")
    >>> model_maker(cnn, relu, image)(seed=0)[-1]
    Linear(in_features=64, out_features=10, bias=True)
    """
    wanted = 1 if loss == "bce_with_logits" else examples.outputs
    example = examples.train_x[:2].cpu()
    raw = _raw_maker(model, chosen, example, wanted, examples.base)
    checked: list[bool] = []

    def make(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                made = raw(seed)
            except RecipeError:
                raise
            except SoftkneeError as error:
                raise RecipeError(f"model {model.build!r} with {chosen.label}: {error}") from error
            if not isinstance(made, nn.Module):
                raise RecipeError(f"model.build {model.build!r} must return an nn.Module, not a {type(made).__name__}.")
            if not checked:
                _check_outputs(made, example, wanted, model)
                checked.append(True)
            _spread_over_depth(made, chosen)
            start_squaf_(made, chosen)
            if init == "matched":
                match_init_(made, chosen, example)
            elif init == "keras":
                keras_init_(made)
        return made

    return make


def _raw_maker(
    model: Model, chosen: Chosen, example: Tensor, outputs: int, folder: str | None
) -> Callable[[int], nn.Module]:
    """How the model is made, with the global generator seeded already."""
    arguments, shape = dict(model.arguments), tuple(example.shape[1:])
    if model.build in (*SMALL, *OF_ROWS):
        filled = _filled(model.build, arguments, shape, outputs)
        by_neuron = chosen.per == "neuron"  # its shape is known to surgery alone
        knobs = {**chosen.values, "learn": chosen.learn, "per": "layer" if by_neuron else chosen.per}

        def network(seed: int) -> nn.Module:
            made = build(model.build, **filled, activation=chosen.name, seed=seed, **knobs)
            return _swapped(made, chosen, example, where=lambda site: True) if by_neuron else made

        return network
    if model.build.startswith(TIMM):
        known = {"num_classes": outputs, **({"in_chans": shape[0]} if len(shape) == 3 else {}), **arguments}
        return lambda seed: _swapped(
            _called(lambda **given: build(model.build, **given), known, example, name=model.build),
            chosen,
            example,
            where=model.where,
            replacing=model.replacing,
        )
    function = PAPERS.get(model.build) or find_function(model.build, folder=folder)
    offered = {"classes": outputs, "input_shape": shape}
    given = {**{name: value for name, value in offered.items() if takes(function, name)}, **arguments}
    if takes(function, "activation"):
        return lambda seed: _with_factory(function, given, seed, chosen, example)
    return lambda seed: _swapped(
        _called(function, {**given, **_seed(function, seed)}, example),
        chosen,
        example,
        where=model.where,
        replacing=model.replacing,
    )


def _filled(builder: str, arguments: dict[str, Any], shape: tuple[int, ...], outputs: int) -> dict[str, Any]:
    """The arguments of a network, with what follows from the data."""
    if builder == "alone":
        if shape != (1,) or outputs != 1:
            raise RecipeError(
                f"model 'alone' is one activation, from one number to one number, and the data have examples of shape "
                f"{shape} and need {outputs} output{'' if outputs == 1 else 's'}; take 'mlp'."
            )
        return arguments
    if builder in OF_ROWS:
        if len(shape) != 1:
            raise RecipeError(
                f"model {builder!r} takes every example as one row of numbers, and they have shape {shape}; leave out "
                "'flat: false' under data."
            )
        dropout = arguments.get("dropout")
        if dropout is not None and not isinstance(dropout, Mapping):
            raise RecipeError(
                "model.arguments.dropout must be a section such as {input: 0.2, hidden: 0.5}, either or both, and "
                f"{dropout!r} was given."
            )
        hidden = arguments.pop("hidden", (128, 128))
        if not isinstance(hidden, tuple | list) or not hidden:
            raise RecipeError(f"model.arguments.hidden must be a list of widths, such as [128, 128], not {hidden!r}.")
        return {"widths": (shape[0], *hidden, outputs), **arguments}
    if len(shape) != 3:
        raise RecipeError(f"model 'cnn' takes images (channels, height, width), and the examples have shape {shape}.")
    return {"image": shape, "classes": outputs, **arguments}


def _spread_over_depth(model: nn.Module, chosen: Chosen) -> None:
    """Give each place its start on the line from the first to the last, where the activation asks for that."""
    modules = list(activation_modules(model).values())
    for name, last in (chosen.last or {}).items():
        first = float(chosen.values[name])
        for depth, module in enumerate(modules):
            module.set_(**{name: first + (last - first) * depth / max(1, len(modules) - 1)})


def _with_factory(
    function: Callable[..., Any], given: Mapping[str, Any], seed: int, chosen: Chosen, example: Tensor
) -> nn.Module:
    """A model whose function asks for the activation: it is given what makes a new module at every call."""
    made: list[nn.Module] = []

    def activation(*, inplace: bool = False) -> nn.Module:
        # Sizes of channels are not known here: surgery puts them in afterwards.
        made.append(module_of(chosen, per="layer", inplace=inplace))
        return made[-1]

    model = _called(function, {**given, "activation": activation, **_seed(function, seed)}, example)
    if not isinstance(model, nn.Module):
        return model  # refused by who asked for it
    if not any(isinstance(module, Parameterised) for module in model.modules()):
        raise RecipeError(
            "model.build: the function takes `activation` and does not use it: call it once for each place, as "
            "activation(), and keep what it returns in the model."
        )
    if chosen.per == "layer":
        return model
    ours = {id(module) for module in made}
    return _swapped(model, chosen, example, where=lambda site: id(site.place.old) in ours)


def _called(
    function: Callable[..., Any], given: Mapping[str, Any], example: Tensor, *, name: str | None = None
) -> nn.Module:
    try:
        made = function(**given)
        # Lazy layers take their sizes from the first call, and their weights from the generator that is seeded now.
        if isinstance(made, nn.Module) and any(is_lazy(tensor) for tensor in (*made.parameters(), *made.buffers())):
            made(example)
        return made
    except SoftkneeError:
        raise
    except Exception as error:
        name = name or getattr(function, "__name__", str(function))
        raise RecipeError(
            f"model.build: {name}({', '.join(given)}) failed ({type(error).__name__}: {error}). Look at "
            "model.arguments."
        ) from error


def _seed(function: Callable[..., Any], seed: int) -> dict[str, int]:
    return {"seed": seed} if takes(function, "seed") else {}


def _swapped(
    model: nn.Module, chosen: Chosen, example: Tensor, *, where: Any, replacing: str | None = None
) -> nn.Module:
    if not isinstance(model, nn.Module):
        return model  # refused by who asked for it
    values: dict[str, Any] = dict(chosen.values)
    sk.swap_(
        model,
        chosen.name,
        where=where,
        replacing=replacing,
        learn=chosen.learn,
        per=chosen.per,
        example=example,
        **values,
    )
    return model


@torch.no_grad()
def _check_outputs(model: nn.Module, example: Tensor, outputs: int, network: Model) -> None:
    training = model.training
    model.eval()
    try:
        output = model(example)
    except (RuntimeError, ParameterError, InputError, TypeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RecipeError(
            f"model {network.build!r} cannot take examples of shape {tuple(example.shape[1:])}: {reason}"
        ) from error
    finally:
        model.train(training)
    wanted = (len(example), outputs)
    if not isinstance(output, Tensor) or tuple(output.shape) != wanted:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise RecipeError(
            f"model {network.build!r} gives outputs of shape {shape} for {len(example)} examples, and the data needs "
            f"{wanted}: one number for each class or quantity."
        )


_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@torch.no_grad()
def match_init_(model: nn.Module, chosen: Chosen, example: Tensor) -> None:
    """Scale the weights of a model in place; a weight that is all 0 stays so."""
    order = _in_order(model, example)
    done: set[int] = set()
    for place, layer in enumerate(order):
        weight = layer.weight
        if id(weight) in done:  # shared by two layers
            continue
        done.add(id(weight))
        gain = start_gain(chosen) if place else 1.0
        size = weight.double().square().mean().sqrt()
        if size > 0:
            fan_in = weight[0].numel()
            weight.mul_((gain / fan_in**0.5 / size).to(weight.dtype))


@torch.no_grad()
def keras_init_(model: nn.Module) -> None:
    """Draw the weights of a model anew as Keras starts its layers: Glorot-uniform, with biases of 0.

    Linear and convolutional layers alone: norms and embeddings stay as they are. Its Adam has another eps than torch's,
    which a recipe writes as `training.options: {eps: 1e-7}`.
    """
    for layer in model.modules():
        if isinstance(layer, _LAYERS):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def start_gain(chosen: Chosen) -> float:
    """The gain of an activation at the values its parameters start with.

    >>> start_gain(Chosen(name="relu", label="relu"))
    1.4142135623730951
    >>> round(start_gain(Chosen(name="srelu", label="srelu", values={"delta": 0.5})), 5)
    1.41201
    """
    module = module_of(chosen, per="layer")
    assert isinstance(module, Parameterised)
    values = {p.name: module.effective(p).detach().double() for p in module.params}
    numbers = tuple((name, value.item()) for name, value in values.items() if value.numel() == 1)
    others = {name: value for name, value in chosen.values.items() if name not in values}
    if others or len(numbers) < len(values):  # a table, or a setting that is no parameter
        return init_gain(chosen.name, params={**chosen.values})
    return _gain(chosen.name, numbers)


@functools.lru_cache(maxsize=256)
def _gain(name: str, numbers: tuple[tuple[str, float], ...]) -> float:
    return init_gain(name, params=dict(numbers))


def _in_order(model: nn.Module, example: Tensor) -> list[Any]:
    """The layers with weights in the order in which they first run; those that never run are left alone."""
    order: list[nn.Module] = []

    def note(layer: nn.Module, *_: object) -> None:
        if layer not in order:
            order.append(layer)

    hooks = [module.register_forward_pre_hook(note) for module in model.modules() if isinstance(module, _LAYERS)]
    modes = {module: module.training for module in model.modules()}
    model.eval()  # batch statistics stay as they are
    try:
        model(example)
    finally:
        for module, mode in modes.items():
            module.training = mode
        for hook in hooks:
            hook.remove()
    return order


def start_squaf_(model: nn.Module, chosen: Chosen) -> None:
    """Bring every SQUAF into its mode, fit it to the function that `fitted` names, and freeze those that `trained`
    leaves out.

    >>> net = nn.Sequential(sk.nn.SQUAF(k=16, q=1.0, learn=True), nn.Linear(2, 2), sk.nn.SQUAF(k=16, q=1.0, learn=True))
    >>> start_squaf_(net, Chosen(name="squaf", label="squaf", learn=True, fitted="relu", trained="first"))
    >>> round(net[0].z[0, 16].item(), 3), sum(one.numel() for one in net.parameters() if one.requires_grad)
    (-0.139, 41)
    """
    if chosen.mode is not None:
        sk.squaf_mode_(model, chosen.mode)
    if chosen.fitted is None and chosen.trained is None:
        return
    layers = [layer for layer in model.modules() if isinstance(layer, sk.nn.SQUAF)]
    if chosen.fitted is not None:
        for layer in layers:
            if layer.k is None or layer.q.numel() > 1:
                raise RecipeError(f"activation {chosen.label!r}: fitted is for one table a layer on a uniform grid.")
            start = sk.design.start(
                chosen.fitted, k=layer.k, q=layer.q.item(), weights=layer.weights, window=layer.window
            )
            alpha = chosen.values.get("alpha", start.alpha)
            if isinstance(alpha, int | float) and not math.isclose(alpha, start.alpha):
                power = "q" if layer.weights == "laplacian" else "q²"
                raise RecipeError(
                    f"activation {chosen.label!r}: fitted begins with alpha = 1.5 / {power} = {start.alpha:g}, and "
                    f"{alpha} was given; leave alpha out."
                )
            layer.set_(z=start.z, alpha=start.alpha)
    if chosen.trained is not None:
        parts = PARTS if chosen.learn is True else (chosen.learn,) if isinstance(chosen.learn, str) else chosen.learn
        sk.train_squaf_(model, parts or (), where=chosen.trained)
