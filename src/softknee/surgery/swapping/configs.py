"""Keeps the configuration of a transformers model true to its activations.

`from_pretrained` builds the model from its configuration: where that still names the old function, the old function
comes back without a word.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from ...errors import SoftkneeError
from ..activation_text import name_of
from ..finding.identify import identify_module
from ..finding.sites import Site
from ..transformers_names import register_transformers
from .operation import Step, Undo

_REPEAT = (
    "Keep the surgery with report.save(path), and repeat it with sk.apply_(model, path) before the weights are loaded."
)


def retell(
    model: nn.Module, found: Sequence[Site], chosen: Sequence[Site], steps: Sequence[Step], *, keep: str = _REPEAT
) -> tuple[list[Callable[[], Undo]], list[str]]:
    """What to do so that the configuration names the new functions, and notes where it cannot."""
    if "transformers" not in sys.modules:
        return [], []
    import transformers

    # Renamed in version 5.
    kind: type = getattr(transformers, "PreTrainedConfig", None) or transformers.PretrainedConfig
    changes: list[Callable[[], Undo]] = []
    notes: list[str] = []
    # By place, and not by the site itself: a plan from a file has found its sites on its own.
    put = {_place(site): step.new for site, step in zip(chosen, steps, strict=True)}
    configs = _configs(model, kind)
    for prefix, config in configs.items():
        under = [site for site in found if _config_of(site, configs) == prefix]
        for key, value in list(vars(config).items()):
            was = _function(key, value)
            if was is None:
                continue
            fed = [site for site in under if site.kind == "module" and _feeds(site, key, was)]
            if not any(_place(site) in put for site in fed):
                continue
            now = [put.get(_place(site), site.place.old) for site in fed]
            for site in fed:
                if _place(site) in put:
                    vars(put[_place(site)])[_FED_BY] = key
            # What earlier surgery changed counts, too.
            text, problem = _text(now, whole=all(vars(module).get(_FED_BY) == key for module in now))
            if text:
                changes.append(_setter(config, key, text))
            else:
                notes.append(
                    f"The configuration still says {key}={value!r}, because {problem}; from_pretrained will build "
                    f"that. {keep}"
                )
    return changes, notes


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


def _setter(config: Any, key: str, text: str) -> Callable[[], Undo]:
    def change() -> Undo:
        register_transformers()
        before = getattr(config, key)
        setattr(config, key, text)
        return lambda: setattr(config, key, before)

    return change


def _configs(model: nn.Module, kind: type) -> dict[str, Any]:
    """The configurations inside a model by the path of the module that has each; a shared one once, the outermost."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        config = getattr(module, "config", None)
        if isinstance(config, kind) and all(config is not one for one in found.values()):
            found[path] = config
    return found


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
        found = identify_module(ACT2FN[value])
    except (KeyError, SoftkneeError):
        return None
    return found.name if found is not None else None
