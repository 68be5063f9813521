"""What surgery asks of a model: its softknee activations by depth, the model inside wrappers, runs without a trace."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..errors import InputError, ParameterError, SoftkneeError
from ..nn.parameters import Parameterised, require_model

T = TypeVar("T")


def activation_modules(model: nn.Module) -> dict[str, Parameterised]:
    """Every softknee module of a model by its path, in order of depth; a shared one once.

    The order is that of registration, unless one swap put all of them in place and saw the order of execution: a module
    that took the place of a call is registered last wherever it is called.

    >>> import softknee as sk, torch
    >>> from softknee.surgery.modules import activation_modules
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SReLU(), torch.nn.Linear(8, 1))
    >>> activation_modules(net)
    {'1': SReLU(delta=1)}
    """
    require_model(model)
    modules = {path: module for path, module in model.named_modules() if isinstance(module, Parameterised)}
    return dict(by_depth(list(modules.items()), lambda item: item[1]))


def by_depth(items: Sequence[T], module_of: Callable[[T], nn.Module]) -> list[T]:
    """In the order in which one swap saw the modules run; as they come where it is not known of all of them."""
    depths = {id(module_of(item)): vars(module_of(item)).get(_DEPTH) for item in items}
    if None in depths.values() or len(set(depths.values())) != len(depths):
        return list(items)
    return sorted(items, key=lambda item: vars(module_of(item))[_DEPTH])


def read_where(where: Any, title: str, *, error: type[SoftkneeError] = ParameterError) -> Any:
    """Patterns of paths as a list, or a function, or None; anything else is refused with a sentence."""
    if where is None or callable(where):
        return where
    patterns = [where] if isinstance(where, str) else list(where) if isinstance(where, Iterable) else [where]
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise error(
                f"{title}: where takes a pattern for the paths of activations, several, or a function, and "
                f"{type(pattern).__name__} was given."
            )
    return patterns


def number_by_depth(modules: Iterable[nn.Module]) -> None:
    """Remember the order in which modules are applied."""
    for depth, module in enumerate(modules):
        vars(module)[_DEPTH] = depth


_DEPTH = "_softknee_depth"


# What wrappers put between a model and its parts.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside of what DDP, averaging or the compiler put around it."""
    require_model(model)
    while True:
        children = dict(model.named_children())
        inside = [children[name] for name in ("module", *WRAPPERS) if name in children]
        if len(children) != 1 or not inside:
            return model
        model = inside[0]


# -- runs that leave a model as it was ----------------------------------------------------------------------


def not_compiled() -> AbstractContextManager[Any]:
    """Compiled functions run as they are written: being watched, they would be compiled anew or given up for good, and
    a compiled graph does not see hooks that came after it.

    Where nothing was compiled yet, the compiler is not loaded either.
    """
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()


@contextlib.contextmanager
def _restored_modes(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextlib.contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Modes, buffers and random numbers are as before at the end."""
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    devices = sorted({p.device.index or 0 for p in (*model.parameters(), *model.buffers()) if p.device.type == "cuda"})
    try:
        with _restored_modes(model), torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                if buffer.device.type != "meta" and not torch.equal(buffer, before):
                    buffer.copy_(before)
                module._buffers[name] = buffer


@contextlib.contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode; at the end every module is in the mode that it was in."""
    with _restored_modes(model):
        model.eval()
        yield


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, no gradients, nothing compiled; the model is as before at the end."""
    with restored(model), torch.no_grad(), not_compiled():
        model.eval()
        yield


@contextlib.contextmanager
def quietly(model: nn.Module, hooks: Mapping[nn.Module, Callable[[Tensor], None]]) -> Iterator[None]:
    """`evaluating`, with a hook on the input of each of these modules."""
    with contextlib.ExitStack() as stack:
        for module, hook in hooks.items():
            stack.callback(hook_input(module, hook))
        stack.enter_context(evaluating(model))
        yield


def hook_input(module: nn.Module, hook: Callable[[Tensor], None]) -> Callable[[], None]:
    """Call the hook with every input of the module, until what this returns is called."""

    def pre(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hook(args[0] if args else kwargs["input"])

    return module.register_forward_pre_hook(pre, with_kwargs=True).remove


def refuse_one_batch(batches: Any) -> None:
    """Refuse what could be iterated over and is a batch itself."""
    if isinstance(batches, Tensor | Mapping | str):
        raise InputError(
            f"batches must be an iterable of batches, and one {type(batches).__name__} was given; put it in a list."
        )
    if not isinstance(batches, Iterable):
        raise InputError(
            f"batches must be an iterable of batches, such as a loader or a list of them, and "
            f"{type(batches).__name__} was given."
        )


def run_all(model: nn.Module, batches: Iterable[Any]) -> int:
    """Every batch through the model, on the model's device; returns how many there were."""
    count = 0
    device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    for batch in batches:
        _run(model, batch, device=device, number=count)
        count += 1
    return count


def _run(model: nn.Module, batch: Any, *, device: torch.device, number: int) -> Any:
    """One batch through the model: a tensor, a tuple whose first entry is the input, or a dict of keyword arguments."""
    if isinstance(batch, list | tuple):
        batch = batch[0] if batch else None
    if not isinstance(batch, Tensor | Mapping):
        raise InputError(
            f"Batch {number} must be a tensor, a tuple whose first entry is one, or a dict of keyword arguments, and "
            f"{type(batch).__name__} was given."
        )
    try:
        if isinstance(batch, Tensor):
            return model(batch.to(device))
        return model(**{key: value.to(device) if isinstance(value, Tensor) else value for key, value in batch.items()})
    except SoftkneeError:
        raise
    except Exception as error:
        raise InputError(f"Batch {number} does not fit {type(model).__name__}: {first_line(error)}.") from error


def run_example(
    model: nn.Module, example: Any, *, inside: AbstractContextManager[Any] | None = None, after: str = ""
) -> Any:
    """The model's output on the example, in eval mode, without gradients; the model is left as it was.

    `inside` is entered around the call; `after` says what was done to the model since the example last worked.
    """
    title = type(model).__name__
    if any(nn.parameter.is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        raise InputError(
            f"{title} has lazy layers that never ran, and an example would give them their shapes; call the model once "
            f"yourself first."
        )
    try:
        with evaluating(model), warnings.catch_warnings(), inside or contextlib.nullcontext():
            # What a model has to say of a run without gradients is not for the user's ears.
            warnings.simplefilter("ignore")
            return _call_with(model, example)
    except Exception as error:
        line = first_line(error) if str(error).strip() else ""
        reason = f"{type(error).__name__}: {line}" + ("" if line.endswith(("!", "?")) else ".")
        if after:
            raise InputError(
                f"{after}, {title} no longer runs on the example ({reason}) Nothing was changed; leave out the site "
                f"that fails with where=."
            ) from error
        raise InputError(
            f"The example does not fit {title}: {reason} Give what the model is called with: a tensor, a tuple of "
            f"arguments, or a dict of named ones."
        ) from error


def _call_with(model: nn.Module, example: Any) -> Any:
    example = _copied_example(example)  # a model may overwrite its input
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, tuple | list) else model(example)


def _copied_example(example: Any) -> Any:
    if isinstance(example, Tensor):
        return example.detach().clone()
    if isinstance(example, Mapping):
        return {name: _copied_example(value) for name, value in example.items()}
    return [_copied_example(value) for value in example] if type(example) in (list, tuple) else example


_MANY = 16  # times as many numbers as are kept: from there on keys are not drawn for all of them


class Reservoir:
    """Keeps the finite numbers with the smallest random keys: a uniform sample of everything that has gone by."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, self._generator = size, torch.Generator().manual_seed(seed)
        self.values, self._keys = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.float64)
        self.rows = torch.empty(0, dtype=torch.int64)

    def add(self, x: Tensor, row_of: Callable[[Tensor], Tensor] = torch.zeros_like) -> None:
        """See the numbers of a tensor; `row_of` gives what is kept beside each, from its place in the flat tensor."""
        flat = x.detach().reshape(-1)
        if flat.numel() >= _MANY * self.size:
            keys, places = smallest_keys(flat.numel(), self.size, self._generator)
        else:
            keys = torch.rand(flat.numel(), generator=self._generator, dtype=torch.float64)
            keys, places = keys.topk(min(self.size, len(keys)), largest=False)
        values = flat[places.to(flat.device)].double().cpu()
        finite = values.isfinite()
        keys = torch.cat([self._keys, keys[finite]])
        self._keys, kept = keys.topk(min(self.size, len(keys)), largest=False)
        self.values = torch.cat([self.values, values[finite]])[kept]
        self.rows = torch.cat([self.rows, row_of(places)[finite]])[kept]


def smallest_keys(count: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The smallest `size` of `count` uniform keys and the places that have them, without drawing all of the keys.

    The smallest of n uniform numbers are E_1/S, (E_1 + E_2)/S ... with S the sum of n + 1 exponential numbers, of which
    the last n + 1 - size together have a gamma distribution (here by its normal limit: n is at least some hundred
    thousand). Which places have them is a set drawn without any preference.
    """
    small = torch.empty(size, dtype=torch.float64).exponential_(generator=generator).cumsum(0)
    others = count + 1 - size
    rest = others + math.sqrt(others) * float(torch.randn(1, generator=generator, dtype=torch.float64))
    indices = torch.empty(0, dtype=torch.int64)
    while len(indices) < size:
        more = torch.randint(count, (size + size // 8,), generator=generator)
        indices = torch.cat([indices, more]).unique()
    chosen = indices[torch.randperm(len(indices), generator=generator)[:size]]
    return small / (small[-1] + rest), chosen


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, also inside lists, tuples and mappings."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [tensor for part in value for tensor in tensors_in(part)] if isinstance(value, list | tuple) else []


def compare(before: Any, after: Any) -> tuple[float | None, float | None]:
    """The largest change of any number in an output, and the same as a share of the largest number.

    Infinite where the outputs have other shapes than before, or are no longer finite; None on the meta device.
    """
    pairs = [
        [tensor.detach() for tensor in tensors_in(output) if tensor.is_floating_point()] for output in (before, after)
    ]
    if [tensor.shape for tensor in pairs[0]] != [tensor.shape for tensor in pairs[1]]:
        return math.inf, math.inf
    if any(tensor.device.type == "meta" for tensor in pairs[0]):
        return None, None
    change, scale = 0.0, 0.0
    for old, new in zip(*pairs, strict=True):
        if not old.numel():
            continue
        old, new = old.double(), new.double()
        same = (old == new) | (old.isnan() & new.isnan())
        moved = (old - new).abs().masked_fill(same, 0.0).nan_to_num(nan=math.inf).max().item()
        change, scale = max(change, moved), max(scale, old.abs().nan_to_num(0.0, 0.0, 0.0).max().item())
    return change, change / scale if scale else (0.0 if change == 0 else math.inf)


# -- texts of reports and errors ----------------------------------------------------------------------------


def table_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows in columns; the last column is as wide as it likes."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows
    ]


def quoted(names: Sequence[str]) -> str:
    """The first four names."""
    return ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "") or "none"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without a full stop; of one without a message its kind."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip().rstrip(".")
