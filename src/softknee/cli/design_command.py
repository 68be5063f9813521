"""What `softknee design` does: a text becomes a definition, which is printed, drawn and saved."""

from collections.abc import Sequence
from pathlib import Path

from ..design import definition
from ..design.texts.files import load
from ..design.texts.files import save as save_definition
from ..errors import ParameterError
from ..registry import FILE_ENDING
from ..spec import Activation
from .design_sheet import print_design
from .screen import console_of, progress_line


def run(text: str, *, param: Sequence[str], name: str | None, plot: Path | None, save: Path | None) -> None:
    """Print the definition; draw it where `plot` says (an empty path means beside, under its name) and save it."""
    act = _definition(text, param, name)
    print_design(act)
    console = console_of()
    if plot is not None:
        from ..lab import figures

        with progress_line("drawing"):
            drawn = figures.draw(act, plot if plot.name else Path(f"{act.name}.html"))
        console.print(f"\nThe curves of f, f' and f'' are in {drawn.name}.", markup=False)
    if save is not None:
        written = save_definition(act, save)
        console.print(f'Saved; softknee.load("{written.name}") gives it back.', markup=False)


def _definition(text: str, param: Sequence[str], name: str | None) -> Activation:
    params: dict[str, str] = {}
    for one in param:
        key, equals, value = one.partition("=")
        if not equals or key.strip() in params:
            raise ParameterError(f"--param takes a name and a number, as in beta=1.0, each name once; {one!r} is not.")
        params[key.strip()] = value.strip()
    if text.strip().endswith(FILE_ENDING):
        if params:
            raise ParameterError("A file has its parameters already; leave --param out.")
        found = load(text.strip())
        return found if name is None else found.with_(name=name)
    return definition(text, params=params, name=name)
