"""`softknee study`: a recipe by name or file is run; `list` and `show` say what there is."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import ParameterError, RecipeError, did_you_mean
from ..files import WriteError
from ..lab.table import Table
from ..measure.record import Record
from .screen import (
    STOPPED,
    Name,
    RecordFile,
    Settings,
    command_line,
    console_of,
    print_table,
    progress_line,
    several,
    several_numbers,
)
from .search import print_result

if TYPE_CHECKING:
    from ..lab.studies.recipe import Recipe
    from ..lab.studies.trials import Outcome

_RUN = "run"

# Commands that became recipes, and what does the same now.
_RETIRED = {
    "wikitext": "softknee study perplexity --set model.build=pretrained:FOLDER for a trained model, and for GPT-2s "
    "from scratch a recipe with 'task: {kind: language}' and 'data: {set: wikitext-2}'; the page on studies names one",
    "rate": "a recipe with 'task: {kind: code}'; the page on studies names one",
    "distil": "a recipe with 'task: {kind: distil}'; the page on studies names one",
    "hardening": "softknee study hardening-digits, and softknee study hardening-fashion --data FOLDER. --seeds 5 is "
    "--set seeds=5, --epochs 40 is --set training.epochs=40, --device cuda is --set device=cuda; --out names the "
    "study's folder, which softknee deploy-check reads",
}


class StudyGroup(TyperGroup):
    """The commands of `softknee study`; what is none of them is a recipe to run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in _RETIRED:
            raise ParameterError(f"'softknee study {args[0]}' has become a recipe. Run {_RETIRED[args[0]]}.")
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            return _RUN, self.commands[_RUN], args
        return super().resolve_command(ctx, args)


study = typer.Typer(
    cls=StudyGroup,
    help="Train and compare activations as a recipe says: softknee study NAME_OR_FILE [OPTIONS]; list, show, merge.\n\n"
    "NAME_OR_FILE is a recipe of `softknee study list`, or a .yaml file of your own; its options are shown by "
    "`softknee study run --help`.",
    no_args_is_help=True,
    subcommand_metavar="NAME_OR_FILE | COMMAND [ARGS]...",
)


@study.command(_RUN)
def study_run(
    name: Name,
    settings: Settings = None,
    out: Annotated[str | None, typer.Option(help="the study's folder or URL; default studies/NAME")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with a study that was stopped; damaged records are set aside")
    ] = False,
    engine: Annotated[str, typer.Option(help="local, or ray for a Ray cluster (RAY_ADDRESS)")] = "local",
    data: Annotated[Path | None, typer.Option(help="the folder of the data sets; default $SOFTKNEE_DATA")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of a trial; default as torch has it, with Ray 1")
    ] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="also write the curves to this folder")] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="train and keep the records, and no more")] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="this activation alone; may be given again")
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="two batches, one epoch, two seeds, on the CPU: only to see that it runs")
    ] = False,
) -> None:
    """Run a recipe: `softknee study NAME_OR_FILE` is short for it. Ctrl-C stops it, --resume goes on with it."""
    from ..lab.studies import runner
    from ..lab.studies.distributed import run_distributed
    from ..lab.studies.engine import StudyStopped
    from ..lab.studies.reporting import check_tools, write_report_into
    from ..lab.studies.store import RunStore

    recipe, base = _find(name, settings)
    if smoke:
        typer.echo(runner.smoke_notice(only or ()), err=True)
        recipe, only = runner.smoke(recipe, only=only or ()), None  # it has these activations and no others
    if not no_report:
        check_tools()
    place, log = out or str(runner.default_place(recipe)), None
    if tensorboard is not None:
        from ..lab.studies.tensorboard import TensorBoardLog

        log = TensorBoardLog(tensorboard).outcome
    try:
        outcomes = run_distributed(
            recipe,
            out=place,
            resume=resume,
            engine=engine,
            data_folder=data,
            base=base,
            command=command_line(),
            threads=threads,
            only=tuple(only or ()),
            each=log,
        )
        if outcomes is None:
            return  # a process of several; the main one says the rest
        if outcomes:
            # With --only as in the report: beside what the store had already.
            _print_headline(recipe, RunStore(place).outcomes() if only else outcomes)
        page = None
        if not no_report:
            try:
                page = write_report_into(RunStore(place), command=command_line())
            except WriteError as error:
                then = f"The records are in {place}; then: softknee report {shlex.quote(place)}"
                raise WriteError(f"{error} {then}") from error
    except StudyStopped as stopped:
        typer.echo(str(stopped), err=True)
        raise typer.Exit(128 + stopped.number) from None
    except KeyboardInterrupt:
        typer.echo(f"Stopped at once; what was finished is kept in '{place}'. Go on with --resume.", err=True)
        raise typer.Exit(STOPPED) from None
    typer.echo(f"The records are in {place}." if page is None else f"The report is {page}.")


@study.command("list")
def study_list() -> None:
    """The recipes that come with softknee."""
    from ..lab.studies.reading import shipped

    recipes = shipped()
    wide = max(len(name) for name, _ in recipes)
    for name, title in recipes:
        typer.echo(f"{name:<{wide}}  {title}")  # a line for each, however wide: other programs read it, too
    typer.echo("\nRun one with: softknee study NAME. See it with: softknee study show NAME.")


@study.command("show")
def study_show(
    name: Name,
    settings: Settings = None,
    full: Annotated[bool, typer.Option("--full", help="also what is left to the defaults")] = False,
) -> None:
    """Print a recipe as it is written; with --set or --full, every setting that it then has."""
    from ..lab.studies.reading import recipe_text, to_yaml

    recipe = _find(name, settings)[0]  # also where the text is printed: a recipe that cannot be run is not shown
    typer.echo(to_yaml(recipe) if settings or full else recipe_text(name), nl=False)


@study.command("merge")
def study_merge(
    into: Annotated[str, typer.Argument(help="the folder or URL that they are brought together in; it may be new")],
    parts: Annotated[list[str], typer.Argument(help="folders or URLs of the same study, as --out named them")],
) -> None:
    """Bring parts of a study together that were run apart, with --only and --out, on several GPUs or machines."""
    from ..lab.studies.reporting import recipe_of
    from ..lab.studies.store import RunStore, merge_studies
    from ..lab.studies.trials import every_chosen

    merged = merge_studies(into, parts)
    store = RunStore(into)
    there = {outcome.trial.activation.label for outcome in store.outcomes() if outcome.trial.kind == "train"}
    recipe = recipe_of(store)
    wanted = [chosen.label for chosen in every_chosen(recipe)]
    left = [label for label in wanted if label not in there]
    added, kept = len(merged.added), len(merged.kept)
    stay = "1 was there already and stays as it is" if kept == 1 else f"{kept} were there already and stay as they are"
    was = "1 trial was" if added == 1 else f"{added} trials were"
    typer.echo(f"{was} added to '{into}'{f'; {stay}' if kept else ''}.")
    if left:
        typer.echo(
            f"{len(wanted) - len(left)} of {len(wanted)} activations are there; these are not: {', '.join(left)}. "
            f"{_how_to_go_on(recipe)} --out {shlex.quote(into)} --resume"
        )
    else:
        typer.echo(f"All {len(wanted)} activations are there. Write the report: softknee report {shlex.quote(into)}")


def report(
    study: Annotated[str, typer.Argument(help="the study's folder or URL, as --out named it")],
) -> None:
    """Write the report of a study, or the page of a search, again from its records."""
    from ..lab import searching
    from ..lab.studies.reporting import recipe_of, write_report_into
    from ..lab.studies.store import RunStore

    if searching.holds_search(study):
        result = searching.read_search(study)
        page = searching.write_page(result, study, command=command_line())
        print_result(result)
        typer.echo(f"The page is {page}.")
        return
    store = RunStore(study)
    page = write_report_into(store, command=command_line())
    _print_headline(recipe_of(store), store.outcomes(with_files=False))
    typer.echo(f"The report is {page}.")


def _find(name: str, settings: list[str] | None) -> tuple["Recipe", Path | None]:
    """The recipe, and the folder that its files are looked for in."""
    from ..lab.studies.reading import find_file, find_recipe

    try:
        file = find_file(name)
    except RecipeError as error:
        near = did_you_mean(name, [command.name or "" for command in study.registered_commands])
        raise RecipeError(f"{error}{near.replace('mean', 'mean the command')}") from None
    return find_recipe(name, settings=settings or ()), None if file is None else file.parent


def _how_to_go_on(recipe: "Recipe") -> str:
    """The beginning of the command that runs the rest of a study: with its name, where that is enough to find it."""
    from ..lab.studies.reading import find_recipe, shipped

    if recipe.name not in [name for name, _ in shipped()]:
        return "Go on with the recipe that it was begun with: softknee study RECIPE"
    whole = find_recipe(recipe.name)
    if replace(whole, paper=None) == replace(recipe, paper=None):  # no trial depends on a paper's numbers
        return f"Go on with: softknee study {recipe.name}"
    return f"Go on with each --set that it was begun with: softknee study {recipe.name} --set KEY=VALUE"


def _print_headline(recipe: "Recipe", outcomes: "list[Outcome]") -> None:
    """The first table of the report, its recommendation and its answers in words."""
    from ..lab.report import summarise
    from ..lab.report.tables import headline

    summary = summarise(recipe, outcomes)
    table = headline(summary)
    # The verdicts in words are wide, and for the report.
    shown = [index for index, head in enumerate(table.head) if " against " not in head]
    head, *rows = ([row[index] for index in shown] for row in (table.head, *table.rows))
    print_table(replace(table, title=recipe.title or recipe.name, head=head, rows=rows))
    advice = (summary.recommendation,) if summary.recommendation else ()
    for line in (*advice, *summary.sentences, *summary.notes):
        console_of().print(str(line), markup=False)


def fits(
    runs: Annotated[list[str] | None, typer.Argument(help="folders or URLs of studies, as --out named them")] = None,
    out: Annotated[
        Path | None, typer.Option(help="the folder for the figures; default 'figures' in the folder of the first study")
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="print the tables beside the paper's in Markdown, and draw nothing")
    ] = False,
    theorem: Annotated[
        Path | None, typer.Option(help="draw the approximation theorem of SQUAF into this .png or .svg; needs no study")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="the folder of the data sets; default $SOFTKNEE_DATA")] = None,
) -> None:
    """Draw what finished studies fitted: pictures, curves, regions of classes, learned SQUAFs, grids of q and alpha.

    Several studies of pictures become one figure side by side, several of one function are drawn together. What a study
    lacks is said, and the rest is drawn.
    """
    from ..lab import fits as room

    if not runs and theorem is None:
        raise ParameterError("Name the folder of a study, as --out named it; or draw the theorem with --theorem FILE.")
    if theorem is not None:
        typer.echo(f"{room.write_theorem(theorem)} is drawn.")
    if not runs:
        return
    studies = [room.read_run(run, data_folder=data) for run in runs]
    if tables:
        typer.echo("\n\n".join(map(room.tables_of, studies)))
        return
    written = room.write_fits(studies, room.default_place(studies[0]) if out is None else out)
    for name, caption in written.captions.items():
        typer.echo(f"{name}: {caption}")
    for note in written.notes:
        typer.echo(f"Missing: {note}")
    if not written.files:
        raise typer.Exit(1)
    typer.echo(f"{len(written.files)} files written to {written.files[0].parent}.")


_ONLY = "relu,smelu(beta=0.5),smelu(beta=1),smelu(beta=2),gelu,linear"


def surface(
    only: Annotated[
        str, typer.Option(help="activations with commas between, such as 'relu,smelu(beta=0.5)'; linear for none")
    ] = "",
    norm: Annotated[str, typer.Option(help="weight, layer or none; several make a row each")] = "",
    v: Annotated[str, typer.Option("--v", help="the value of the norm; several make a row each")] = "",
    clip: Annotated[str, typer.Option(help="where activations are clipped, or none; several make a row each")] = "",
    paper: Annotated[int | None, typer.Option(help="a figure of the SmeLU paper instead: 2, 5, 6 or 7")] = None,
    seed: Annotated[int, typer.Option(min=0, help="draws the weights, the same for every surface")] = 0,
    networks: Annotated[
        int, typer.Option(min=1, help="how many to measure, from that seed on; the first is drawn")
    ] = 1,
    points: Annotated[int, typer.Option(min=3, help="of the grid along each input")] = 121,
    dtype: Annotated[str, typer.Option(help="f64 or f32")] = "f64",
    view: Annotated[str, typer.Option(help="relief, or map with contours")] = "relief",
    dpi: Annotated[int, typer.Option(min=20, max=1200, help="pixels to the inch")] = 160,
    out: Annotated[Path, typer.Option(help="the .png, .svg or .pdf to draw")] = Path("surface.png"),
    numbers: Annotated[Path | None, typer.Option(help="write the heights to this .npz file")] = None,
    json: RecordFile = None,
) -> None:
    """Draw and measure the output of a random network over two inputs, for several activations and norms."""
    from ..lab import surface as room
    from ..lab.chart import check_ending

    check_ending(out, room.ENDINGS)
    room.check_choice(view, room.VIEWS, "view")
    if numbers is not None:
        room.check_archive(numbers)
    if paper is not None:
        if only or norm or v or clip:
            raise ParameterError("--paper says what is drawn: leave out --only, --norm, --v and --clip.")
        rows = room.paper_rows(paper)
    else:
        limits = several(clip or "none")
        clips = [None if part == "none" else several_numbers("--clip", part, float)[0] for part in limits]
        rows = room.rows_of(
            room.split_texts(only or _ONLY),
            norms=room.split_texts(norm or "weight"),
            vs=several_numbers("--v", v or "1", float),
            clips=clips,
        )
    command = command_line()
    with progress_line("surface:") as report:
        surface = room.compute(
            rows, seed=seed, networks=networks, points=points, dtype=dtype, command=command, report=report
        )
        report("drawing")
        drawn = room.write_figure(surface, out, view=view, dpi=dpi)
        if numbers is not None:
            room.write_numbers(surface, numbers)
    if json is not None:
        surface.record.write(json)
    _print_table(surface.record)
    console_of().print(f"\nThe surfaces are in {drawn.name}.", markup=False)


def _print_table(record: Record) -> None:
    """A line for each surface: what it is of, and how rough."""
    count = len(record.seeds)
    over = f"{count} networks: medians, and half the distance of the quartiles" if count > 1 else "one network"
    lines = []
    for row in record.rows:
        v = "" if row["norm"] == "none" else f"{row['v']:g}"
        clip = "" if row["clip"] is None else f"{row['clip']:g}"
        numbers = [row[name].text(digits) for name, digits in (("kink", 3), ("bending", 3), ("extrema", 0))]
        ends = [f"{row[name].value:.3g}" if abs(row[name].value) > 1e-9 else "0" for name in ("low", "high")]
        lines.append((row["activation"], row["norm"], v, clip, *numbers, *ends))
    head = ("activation", "norm", "v", "clip", "kink", "bending", "extrema", "low", "high")
    table = Table(title=f"Roughness of {over}", head=head, rows=lines, align="llrrrrrrr")
    print_table(table, no_wrap=True)
