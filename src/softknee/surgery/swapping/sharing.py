"""What is used in several places: separate modules where they learn, else one for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..finding.rewriting import count_calls
from ..finding.sites import Site
from .operation import Step


@dataclass
class Settled:
    """What is to be done.

    sites:  the sites that get a module of their own.
    served: by the path of such a site, the paths of further sites that call the same module.
    kept:   what must be put aside to stay as it is.
    notes:  what to know of it.
    """

    sites: list[Site] = field(default_factory=list)
    served: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kept: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def settle(chosen: Sequence[Site], found: Sequence[Site], *, apart: bool) -> Settled:
    """Settle what is called from several lines of its owner.

    Args:
        apart: whether each line gets a module of its own, because it has parameters to learn.
    """
    result = Settled()
    looped: list[str] = []
    lines: list[str] = []
    for site in chosen:
        mates = [one for one in found if _same_attribute(one, site)]
        together = all(any(one is mate for one in chosen) for mate in mates)
        if _is_further_line(site) and together and not apart:
            continue  # the module of the first line serves this one, too
        result.sites.append(site)
        if not _is_further_line(site):
            result.kept += [_put_aside(mate) for mate in mates if not any(mate is one for one in chosen)]
            if together and not apart:
                result.served[site.path] = tuple(mate.path for mate in mates if mate is not site)
        if apart and site.seen is not None and site.seen.times > 1:
            looped.append(site.path)
        if apart and site.seen is None and len(mates) == 1:
            lines += [site.path] * (count_calls(type(site.place.owner), site.place.name) > 1)
    if looped:
        result.notes.append(
            f"Called several times from one line, with parameters shared by all calls: {listed(looped)}."
        )
    if lines:
        result.notes.append(
            f"Called from several lines, which will share their parameters: {listed(lines)}. Give example= for one "
            f"module each."
        )
    return result


def _is_further_line(site: Site) -> bool:
    """Whether it is one more line that calls an attribute: the first line is the site of the attribute itself."""
    return bool(site.place.calls) and site.place.old is not None


def _same_attribute(one: Site, other: Site) -> bool:
    """Whether two sites are one attribute that is called from two lines."""
    if one is other:
        return True
    if one.place.old is None or one.place.old is not other.place.old or one.place.owner is not other.place.owner:
        return False
    names = [site.place.calls[0].attribute if _is_further_line(site) else site.place.name for site in (one, other)]
    return names[0] == names[1]


def _put_aside(site: Site) -> Step:
    """What a line that is left out calls from now on: the old module or function, under a name of its own."""
    return Step(site.place, site.place.old, kept=True)


def listed(paths: Sequence[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
