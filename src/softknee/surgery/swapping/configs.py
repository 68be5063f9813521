"""Keeps the configuration of a transformers model true to its activations.

`from_pretrained` builds the model from its configuration: where that still names the old function, the old function
comes back without a word. So it does where a class asks no entry (Bloom), fills an entry anew when it is loaded (T5),
or builds a part of its layers with a function of its own (ResNet). Hence the model is built once more from what the
configuration would say, without weights, to see whether the new functions come back. A class that keeps the name and
calls a function by it (Mamba) would compute something else under another name, so that its entry stays as it is.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...errors import SoftkneeError
from ..activation_text import name_of, register_transformers
from ..finding.identify import identify_module
from ..finding.rewriting import edits_of
from ..finding.sites import Site
from .operation import Step, Undo, perform, take_back

_REPEAT = (
    "Keep the surgery with report.save(path), and repeat it with sk.apply_(model, path) before the weights are loaded."
)


@dataclass(frozen=True)
class _Entry:
    """An entry of a configuration, what it is to say, and the changed sites that it builds."""

    config: Any
    key: str
    text: str
    sites: list[Site]

    def change(self) -> Undo:
        register_transformers()
        before = getattr(self.config, self.key)
        setattr(self.config, self.key, self.text)
        return lambda: setattr(self.config, self.key, before)

    @property
    def accepted(self) -> bool:
        """Whether the configuration takes the new text; some allow a few names only."""
        try:
            self.change()()
        except Exception:  # whatever its validation raises
            return False
        return True

    def note(self, problem: str, keep: str) -> str:
        value = getattr(self.config, self.key)
        return (
            f"The configuration still says {self.key}={value!r}, because {problem}; from_pretrained will build that. "
            f"{keep}"
        )


def update_configs(
    model: nn.Module, sites: Sequence[Site], chosen: Sequence[Site], steps: Sequence[Step], *, keep: str = _REPEAT
) -> tuple[list[Callable[[], Undo]], list[str]]:
    """What to do so that the configuration names the new functions, and notes where it cannot."""
    if "transformers" not in sys.modules:
        return [], []
    import transformers

    # Renamed in version 5.
    kind: type = getattr(transformers, "PreTrainedConfig", None) or transformers.PretrainedConfig
    # By place, and not by the site itself: a plan from a file has found its sites on its own.
    put = {_place(site): step.new for site, step in zip(chosen, steps, strict=True)}
    entries: list[_Entry] = []
    notes: list[str] = []
    named: set[tuple[int, str]] = set()
    configs = _configs(model, kind)
    for prefix, config in configs.items():
        under = [site for site in sites if _config_of(site, configs) == prefix]
        for key, value in list(vars(config).items()):
            was = _function(key, value)
            if was is None:
                continue
            fed = [site for site in under if site.kind == "module" and _feeds(site, key, was)]
            changed = [site for site in fed if _place(site) in put]
            if not changed:
                continue
            named |= {_place(site) for site in changed}
            now = [put.get(_place(site), site.place.old) for site in fed]
            for site in changed:
                vars(put[_place(site)])[_FED_BY] = key
            # What earlier surgery changed counts, too.
            text, problem = _text(now, whole=all(vars(module).get(_FED_BY) == key for module in now))
            entry = _Entry(config, key, text, changed)
            if text:
                entries.append(entry)
            else:
                notes.append(entry.note(problem, keep))
    unnamed = [site for site in chosen if _place(site) not in named]
    accepted = [entry for entry in entries if entry.accepted]
    notes += [entry.note("it takes no other name", keep) for entry in entries if not entry.accepted]
    true, more = _come_back(model, accepted, unnamed, put, keep)
    return [entry.change for entry in true], notes + more


# -- what from_pretrained would build -------------------------------------------------------------------------------


def _come_back(
    model: nn.Module,
    entries: Sequence[_Entry],
    unnamed: Sequence[Site],
    put: Mapping[tuple[int, str], nn.Module],
    keep: str,
) -> tuple[list[_Entry], list[str]]:
    """The entries that bring the new functions back, and notes of what does not come back."""
    roots = _pretrained(model)
    if not roots or not (entries or unnamed):
        return list(entries), []
    built = {path: _built_anew(root, entries) for path, root in roots.items()}

    def lost(site: Site, *, unsure: bool) -> bool:
        path = next((root for root in roots if not root or site.path.startswith(root + ".")), None)
        twin = built[path] if path is not None else None
        if path is None or twin is None:
            return unsure and path is not None
        return not _has(twin, site.path.removeprefix(path + ".") if path else site.path, put[_place(site)])

    true: list[_Entry] = []
    notes: list[str] = []
    for entry in entries:
        if missed := [site.path for site in entry.sites if lost(site, unsure=False)]:
            notes.append(entry.note(f"whatever it says, another function is built at {_some(missed)}", keep))
        elif named := [site for site in entry.sites if _keeps_name(site, getattr(entry.config, entry.key))]:
            where = _some([site.path for site in named])
            notes.append(entry.note(f"the code around {where} also calls a function by that name, as it is now", keep))
        else:
            true.append(entry)
    if missed := [site.path for site in unnamed if lost(site, unsure=True)]:
        notes.append(
            f"No entry of the configuration names the function at {_some(missed)}; from_pretrained will build what the "
            f"code of the model says there. {keep}"
        )
    return true, notes


def _keeps_name(site: Site, name: str) -> bool:
    """Whether the module that has this activation keeps the name of the entry as well, to call a function by it.

    Mamba hands `activation="silu"` to its convolution and never runs the module beside it: surgery changes the module,
    and another entry would change what the convolution does.
    """
    return any(value == name for value in vars(site.place.owner).values() if isinstance(value, str))


def _some(paths: Sequence[str]) -> str:
    return repr(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def _pretrained(model: nn.Module) -> dict[str, nn.Module]:
    """The outermost models of transformers inside a model, by their paths."""
    import transformers

    models: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        outer = any(not outer_path or path.startswith(outer_path + ".") for outer_path in models)
        if isinstance(module, transformers.PreTrainedModel) and not outer:
            models[path] = module
    return models


def _built_anew(root: Any, entries: Sequence[_Entry]) -> nn.Module | None:
    """The model that its configuration describes with these entries, without weights; None where it cannot be built."""
    if getattr(root.config, "use_pretrained_backbone", False):
        return None  # to build it would load weights
    with _written(entries), contextlib.suppress(Exception):
        config = type(root.config).from_dict(root.config.to_dict())
        with torch.device("meta"), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return edits_of(type(root))[0](config)
    return None


@contextlib.contextmanager
def _written(entries: Sequence[_Entry]) -> Iterator[None]:
    done = perform((), extra=[entry.change for entry in entries])
    try:
        yield
    finally:
        take_back(done)


def _has(twin: nn.Module, path: str, new: nn.Module) -> bool:
    """Whether there is the same function, learned alike, at a path; its numbers come with the weights."""
    try:
        there = twin.get_submodule(path)
        return _module_text(there) == _module_text(new)
    except (AttributeError, SoftkneeError):
        return False


def _module_text(module: nn.Module) -> str:
    return _plain_name(module) or name_of(module, numbers=False)


# -- which entry builds what ----------------------------------------------------------------------------------------


# Which entry of the configuration built a module's predecessor: what the entry says may not be what is there.
_FED_BY = "_softknee_config_key"


def _place(site: Site) -> tuple[int, str]:
    return id(site.place.owner), site.place.name


def _feeds(site: Site, key: str, function: str) -> bool:
    marked = vars(site.place.old).get(_FED_BY)
    return marked == key if marked is not None else site.activation == function


def _text(new: Sequence[nn.Module], *, whole: bool) -> tuple[str, str]:
    """The one text for all of these modules, or why there is none."""
    if not whole:
        return "", "it names one function for all layers and not all of them were changed"
    plain = {_plain_name(module) for module in new}
    if plain != {""}:
        return (plain.pop(), "") if len(plain) == 1 else ("", "the new functions differ")
    try:
        texts = {name_of(module) for module in new}
    except SoftkneeError:  # values that no text carries, such as a fitted table
        texts = set()
    try:
        if len(texts) == 1:
            return texts.pop(), ""
        # Those, and values that differ from layer to layer, come with the weights.
        texts = {name_of(module, numbers=False) for module in new}
    except SoftkneeError as error:
        return "", f"it cannot carry this function ({str(error).rstrip('.')})"
    return (texts.pop(), "") if len(texts) == 1 else ("", "the new functions differ")


def _plain_name(module: nn.Module) -> str:
    """The name that transformers has for a plain module of torch, if it is one."""
    if isinstance(module, nn.LeakyReLU) and abs(module.negative_slope - nn.LeakyReLU().negative_slope) > 1e-9:
        return ""  # a name alone has torch's own slope, which in float32 is less by 2e-10
    return {"ReLU": "relu", "LeakyReLU": "leaky_relu", "ReLU6": "relu6"}.get(
        type(module).__name__ if type(module).__module__.startswith("torch.") else "", ""
    )


def _configs(model: nn.Module, kind: type) -> dict[str, Any]:
    """The configurations inside a model by the path of the module that has each; a shared one once, the outermost."""
    configs: dict[str, Any] = {}
    for path, module in model.named_modules():
        config = getattr(module, "config", None)
        if isinstance(config, kind) and all(config is not other for other in configs.values()):
            configs[path] = config
    return configs


def _config_of(site: Site, configs: dict[str, Any]) -> str | None:
    """The path of the innermost configured module around a site."""
    around = [path for path in configs if not path or site.path.startswith(path + ".")]
    return max(around, key=len, default=None)


def _function(key: str, value: Any) -> str | None:
    """The function that an entry of a configuration names, or None where it names none."""
    from transformers.activations import ACT2FN

    if "act" not in key or not isinstance(value, str):
        return None
    try:
        identity = identify_module(ACT2FN[value])
    except (KeyError, SoftkneeError):
        return None
    return identity.name if identity is not None else None
