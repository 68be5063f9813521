"""Modules as texts of the grammar in `softknee.registry`, and those texts in the configurations of transformers.

`name_of` writes the prefix "softknee:", so that a reader of a config who lacks softknee is told what is missing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .. import zoo  # noqa: F401 - importing it announces the names of the zoo
from ..errors import ParameterError, need_package
from ..kernels.squaf.arguments import sample, uniform_points
from ..nn import Squaf, make
from ..nn.baselines import baseline_named
from ..nn.one_vector import OneVector
from ..nn.parameters import Parameterised
from ..registry import PREFIX, get, holds, names
from ..spec import Activation, SoftTable
from ..spec.constraints import AtLeastOne
from ..transformers_names import TABLES, teach


def module_of(text: str) -> nn.Module:
    """A new module from its text.

    >>> from softknee.surgery import module_of, name_of
    >>> module_of("srelu(delta=0.05, learn=delta)")
    SReLU(delta=0.05 (learned), per='layer')
    >>> name_of(module_of("squaf(k=16, q=0.25, z=gelu, learn=z+q)"))
    'softknee:squaf(k=16, q=0.25, alpha=24, z=gelu, window=5, learn=q+z)'
    """
    if not isinstance(text, str):
        raise ParameterError(f"An activation is named by a text here, and {type(text).__name__} was given.")
    return make(text)


# -- from a module to its text ------------------------------------------------------------------------------------


def name_of(module: nn.Module, *, numbers: bool = True) -> str:
    """The text that `module_of` makes such a module from.

    Args:
        module: one of softknee, with one value of each parameter per layer.
        numbers: False leaves out the values, which a checkpoint brings: what a config needs when every layer has values
            of its own, or SQUAF a table that no function names.

    What a text cannot carry is refused with the reason.

    >>> import softknee as sk
    >>> from softknee.surgery import name_of
    >>> name_of(sk.nn.SReLU(delta=0.05, learn=True)), name_of(sk.nn.SReLU(delta=0.05, learn=True), numbers=False)
    ('softknee:srelu(delta=0.05, learn=delta)', 'softknee:srelu(learn=delta)')
    """
    if not isinstance(module, Parameterised):
        raise ParameterError(
            f"Only modules of softknee have such a text, and {type(module).__name__} is none; give one of them, such "
            "as sk.nn.SReLU(), and of a whole model its activations one by one."
        )
    definition: Any = getattr(module, "definition", None)
    baseline = baseline_named(module.title) if isinstance(module, OneVector) else None
    if baseline is not None and isinstance(module, baseline.module):
        definition = baseline
    elif definition is None or not _found_by_name(definition):
        raise ParameterError(
            f"{module.title!r} is not what its name gives everywhere; softknee.register() it first, here and wherever "
            f"the text is read."
        )
    if module.granularity.per != "layer":
        raise ParameterError(
            f"{module.title}: a text carries one value for each layer, and this module has {module.granularity}."
        )
    if numbers and any(module.effective(p).device.type == "meta" for p in module.params):
        raise ParameterError(f"{module.title} is on the meta device and has no values yet; pass numbers=False.")
    if isinstance(module, OneVector):
        parts = _baseline_parts(module, numbers)
    else:
        parts = _squaf_parts(module, numbers) if isinstance(module, Squaf) else _parts(module, numbers)
    if isinstance(module, OneVector):
        usual = baseline is not None and baseline.learns
        parts += [] if bool(module.learned) == usual else [f"learn={module.vector.name if module.learned else 'none'}"]
    elif module.learned:
        parts.append(f"learn={'+'.join(module.learned)}")
    return f"{PREFIX}{definition.name}({', '.join(parts)})" if parts else f"{PREFIX}{definition.name}"


def _found_by_name(definition: Any) -> bool:
    if not isinstance(definition, SoftTable):
        return holds(definition)
    return definition.name in names() and get(definition.name).with_weights(definition.weights) is definition


def _parts(module: Parameterised, numbers: bool) -> list[str]:
    parts = [_number(module, p) for p in module.params] if numbers else []
    for p in module.params:
        if isinstance(p.constraint, AtLeastOne) and p.constraint != AtLeastOne() and p.name in module.learned:
            parts.append(f"temperature={p.constraint.temperature!r}")
    return parts


def _baseline_parts(module: OneVector, numbers: bool) -> list[str]:
    """The settings that are not the usual ones; the vector itself only where it is where it starts."""
    usual = type(module)()
    changed = {name: getattr(module, name) for name in module.settings if getattr(module, name) != getattr(usual, name)}
    if numbers:
        vector = module.effective(module.vector)
        start = type(module)(**changed, learn=bool(module.learned), dtype=vector.dtype).state_dict()
        for name, held in module.state_dict().items():
            if not torch.equal(held.cpu(), start[name]):
                raise ParameterError(
                    f"{module.title}: its numbers {name} are not those it usually starts from, and a text cannot carry "
                    f"them; pass numbers=False and let the checkpoint carry them."
                )
    return [f"{name}={_word(value)}" for name, value in changed.items()]


def _word(value: Any) -> Any:
    return "none" if value is None else int(value) if isinstance(value, bool) else value


def _squaf_parts(module: Squaf, numbers: bool) -> list[str]:
    if module.k is None:
        raise ParameterError(f"{module.title}: a text cannot carry the points of a general grid.")
    q, alpha, _ = module.params
    parts = [f"k={module.k}"]
    if numbers:
        parts += [_number(module, q), _number(module, alpha), f"z={_sampled(module)}"]
    if module.window_is_auto:
        parts += ["window=auto", f"tolerance={module.tolerance!r}"]
    else:
        parts.append(f"window={module.window or 'none'}".lower())
    parts += [f"weights={module.weights}"] if module.weights != "gaussian" else []
    parts += [f"tails={module.tails}"] if module.tails != "flat" else []
    return parts + ([f"mode={module.mode}"] if module.mode != "soft" else [])


def _number(module: Parameterised, p: Any) -> str:
    """The fewest digits that give the value back, in the precision it has."""
    value = module.effective(p).detach().reshape(())
    number = value.item()
    if p.name in module.learned and not p.constraint.allows_learned(number):
        raise ParameterError(
            f"{module.title}: {p.name} is {number!r}, from where it cannot be learned (it must be "
            f"{p.constraint.learned_words}); pass numbers=False and let the checkpoint carry it."
        )
    texts = (f"{number:.{digits}g}" for digits in range(1, 17))
    fits = (text for text in texts if torch.tensor(float(text), dtype=value.dtype) == value.cpu())
    return f"{p.name}={next(fits, repr(number))}"


def _sampled(module: Squaf) -> str:
    """The name of the function whose values at the grid points are z."""
    assert module.k is not None
    q, _, z = (module.effective(p).detach().cpu() for p in module.params)
    if (name := sampled_name(z.reshape(-1), q=q.reshape(()), k=module.k)) is not None:
        return name
    raise ParameterError(
        f"{module.title}: its table z is not the sample of a function that has a name, so that a text cannot carry it; "
        f"pass numbers=False and let the checkpoint carry it."
    )


def sampled_name(z: Tensor, *, q: Tensor, k: int) -> str | None:
    """The name of the function whose values at i q are z, i = -k..k; None if no function with its defaults does."""
    points = uniform_points(q.double(), k=k)
    # Where z was sampled, q still had all its digits: one unit in the last place of it moves a value by as much.
    near = 4 * torch.finfo(z.dtype).eps * max(1.0, float(points[-1]))
    for name in ("relu", "gelu", *names()):
        if isinstance(get(name), Activation):
            values = sample(name, points=points)
            if torch.allclose(values, z.double(), rtol=0.0, atol=near):
                return name
    return None


# -- texts in the configurations of transformers ------------------------------------------------------------------


def register_transformers() -> None:
    """Make every name of softknee, and every text with values, a valid activation in transformers' configs.

    `import softknee` does so by itself, also when transformers is imported later. This call says why where it did not
    work, and gives names registered since then to transformers' second table, ACT2CLS (RT-DETR and a few more of
    vision ask that one), which knows no texts with values. Calling again does no harm. A text gives a new module each
    time it is looked up, so that layers share no parameters.

        config = transformers.BertConfig(hidden_act="srelu(delta=0.05, learn=delta)")
        model = transformers.GPT2LMHeadModel.from_pretrained(folder, activation_function="softknee:lambda_gelu")
    """
    teach(need_package(TABLES, "register_transformers() needs the package 'transformers'", "text"))
