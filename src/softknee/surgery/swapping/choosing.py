"""Which sites a swap means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch

from ... import registry
from ...errors import InputError, UnknownActivationError, did_you_mean
from ...kernels import find
from ...spec import Activation, Rowwise, SoftTable
from ..finding.identify import GATES
from ..finding.probing import double
from ..finding.sites import Site
from ..modules import read_where

Where = str | Iterable[str] | Callable[[Site], bool] | None
Replacing = str | type | Activation | SoftTable | Rowwise | Iterable[Any] | None


def choose(
    found: Sequence[Site], *, where: Where, replacing: Replacing, example: bool, title: str
) -> tuple[list[Site], list[tuple[Site, str]]]:
    """The sites meant, and the others with the reason; a sentence where none is meant or none can be changed."""
    hint = "" if example else " Give example= to find the functions that are called inside forward, too."
    if not found:
        raise InputError(f"{title} has no activation that can be replaced.{hint}")
    pattern, wanted = read_where(where, "swap_", error=InputError), _read_replacing(replacing)
    by_place = [(site, _not_there(site, pattern)) for site in found]
    there = [site for site, reason in by_place if not reason]
    if not there:
        raise InputError(
            f"{_pattern_text(pattern)} matches none of the {len(found)} activations of {title}. Did you mean "
            f"{' or '.join(repr(one) for one in _nearest(pattern, found))}?{hint}"
        )
    reasons = [(site, reason or _not_that(site, wanted)) for site, reason in by_place]
    if all(reason for _, reason in reasons):
        raise InputError(f"{title} has {_none_of_that(wanted, there)}{hint}")
    chosen = [site for site, reason in reasons if not reason and not site.trouble]
    skipped = [(site, reason or _sentence(site.trouble)) for site, reason in reasons if reason or site.trouble]
    if not chosen:
        site = next(site for site, reason in reasons if not reason)
        raise InputError(f"Nothing of {title} can be changed. {site.path} ({site.function}): {_sentence(site.trouble)}")
    return chosen, skipped


def _sentence(trouble: str) -> str:
    """The reason why a site cannot be changed, and what to do."""
    cure = "" if ";" in trouble else "; make it a module of its own to change it"
    return f"{trouble[0].upper()}{trouble[1:]}{cure}."


def _pattern_text(where: Any) -> str:
    if callable(where):
        return "The function where="
    return f"where={where[0]!r}" if len(where) == 1 else f"where={where!r}"


def _nearest(where: Any, found: Sequence[Site]) -> list[str]:
    """The paths, or patterns for several of them, that look most like what was asked for."""
    paths = [site.path for site in found]
    if callable(where) or not where:
        return paths[:1]
    patterns = sorted({f"*.{path.rpartition('.')[2]}" for path in paths if "." in path})
    tails = sorted({"*." + ".".join(path.split(".")[-2:]) for path in paths if path.count(".") > 1})
    return get_close_matches(where[0], [*patterns, *tails, *paths], n=2, cutoff=0.4) or paths[:1]


def _not_there(site: Site, where: list[str] | Callable[[Site], bool] | None) -> str:
    if where is None:
        return ""
    if not isinstance(where, list):
        return "" if where(site) else "The function where= leaves it out."
    return (
        "" if any(fnmatchcase(site.path, one) for one in where) else f"Its path does not match {_pattern_text(where)}."
    )


def _read_replacing(replacing: Any) -> list[Any]:
    """What is to be replaced: names, classes and definitions; nothing for what is replaced unasked."""
    if replacing is None:
        return []
    several = isinstance(replacing, Iterable) and not isinstance(replacing, str | type)
    asked = list(replacing) if several else [replacing]
    for one in asked:
        if not isinstance(one, str | type | Activation | SoftTable | Rowwise):
            raise InputError(
                f"replacing takes the name of a function or a class, a class, a definition, or several of them, and "
                f"{type(one).__name__} was given."
            )
    if not asked:
        raise InputError("replacing was given with nothing in it; name what to replace, or leave it out.")
    return asked


def _none_of_that(wanted: Sequence[Any], there: Sequence[Site]) -> str:
    """The sentence for a model that computes other functions than those asked for."""
    functions = sorted({site.function for site in there})
    names = [one.partition("(")[0] for one in functions]
    lacks, near = "nothing that is replaced unasked", ""
    if wanted:
        said = (repr(one) if isinstance(one, str) else getattr(one, "__name__", str(one)) for one in wanted)
        lacks = f"no activation here that is {' or '.join(said)}"
        # Who names a function that there is has not mistyped it; it is not in this model.
        known = list(dict.fromkeys([*names, *registry.names()]))
        near = "".join(did_you_mean(one, known) for one in wanted[:1] if isinstance(one, str) and one not in known)
    return f"{lacks}: it computes {', '.join(functions)}. Name what to replace, such as replacing={names[0]!r}.{near}"


def _not_that(site: Site, replacing: Sequence[Any]) -> str:
    if replacing:
        return "" if any(_computes(site, one) for one in replacing) else f"It computes {site.function}."
    if site.trouble:
        return ""  # the better reason
    if not site.known:
        return f"It computes no function of softknee; name it to replace it: replacing={site.activation!r}."
    if site.role:
        return f"{site.role[0].upper()}{site.role[1:]}; name it to replace it: replacing={site.activation!r}."
    if site.activation in GATES:
        return f"It is a gate or a limit; name it to replace it: replacing={site.activation!r}."
    return ""


def _computes(site: Site, asked: Any) -> bool:
    if isinstance(asked, type):
        return isinstance(site.place.old, asked)
    if not isinstance(asked, str):
        return getattr(site.place.old, "definition", None) is asked
    try:
        wanted = registry.get(asked)
    except UnknownActivationError:
        return asked in (site.activation, type(site.place.old).__name__)
    if not site.known:
        return asked == site.activation
    here = _definition(site)
    if asked != wanted.name:  # an alias, such as silu of swish, is the function at its usual parameters
        return here is wanted and not site.params
    # "gelu" is every GELU; "gelu_tanh" is the approximation alone.
    forms = [name for choice in getattr(wanted, "variants", {}).values() for name in choice.values()]
    if here is wanted or (bool(forms) and forms[0] == wanted.name and here.name in forms):
        return True
    return _same_function(here, site.params, wanted)


def _same_function(here: Any, params: Mapping[str, float], wanted: Any) -> bool:
    """Whether one definition at these parameters is another at its usual ones, as ELU is CELU, and Swish QuickGELU."""
    both = isinstance(here, Activation) and isinstance(wanted, Activation)
    return both and torch.allclose(here(double(), **params), wanted(double()), rtol=1e-7, atol=1e-7)


def _definition(site: Site) -> Any:
    held = getattr(site.place.old, "definition", None)
    return held if held is not None else find(site.activation)
