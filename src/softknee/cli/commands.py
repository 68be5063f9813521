"""The commands and their options. Rooms are imported inside them, so that `--help` waits for none."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ParameterError
from ..version import VERSION
from .compare_command import compare
from .data_command import data
from .epoch_command import bench_epoch
from .fits_command import fits
from .image_command import distil, rate
from .keeping import Keep, kept_in, write_record
from .language_command import preference, wikitext
from .study_command import report, study
from .surface_command import surface
from .typed import RecordFile, command_line, several
from .wire_command import bench_wire
from .workbench import workbench

app = typer.Typer(
    help="Activation functions as data: measure them and study them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)
app.add_typer(bench, name="bench")
bench.command("wire")(bench_wire)
bench.command("epoch")(bench_epoch)
app.add_typer(study, name="study")
study.command("preference")(preference)
study.command("wikitext")(wikitext)
study.command("rate")(rate)
study.command("distil")(distil)
app.add_typer(data, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"softknee {VERSION}")
        raise typer.Exit


@app.callback()
def softknee(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Activation functions as data: measure them and study them."""


@bench.command("kernels")
def bench_kernels(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    elements: Annotated[str | None, typer.Option(help="such as 64M; default 64M on a GPU, 4M on a CPU")] = None,
    dtype: Annotated[str | None, typer.Option(help="any of bf16,f16,f32,f64; default bf16,f32 (CPU: f32)")] = None,
    only: Annotated[str, typer.Option(help="function names with commas between; default all")] = "",
    variants: Annotated[str, typer.Option(help="variant names with commas between; default all")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="samples of each call")] = 25,
    seconds: Annotated[float, typer.Option(min=0.01, help="time for each call; a slow one gets fewer samples")] = 2.0,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default as torch has it")] = None,
    json: RecordFile = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown instead of a table")] = False,
) -> None:
    """Time every function, forward and backward, as a multiple of copying the same tensor."""
    from ..measure import speed
    from .screen import print_speed, progress_line

    chosen = speed.choose_device(device)
    on_gpu = chosen.type == "cuda"
    settings = speed.Settings(
        device=chosen,
        elements=speed.parse_elements(elements or ("64M" if on_gpu else "4M")),
        dtypes=several(dtype or ("bf16,f32" if on_gpu else "f32")),
        functions=several(only),
        variants=several(variants),
        repeats=repeats,
        seconds_per_call=seconds,
        **({} if threads is None else {"threads": threads}),
    )
    with progress_line("measuring") as report:
        record = speed.measure(settings, command=command_line(), report=report)
    if json is not None:
        record.write(json)
    print_speed(record, markdown=markdown)


@bench.command("model")
def bench_model(
    model: Annotated[str, typer.Argument(help="timm:NAME, or transformers:KIND (bert, distilbert, gpt2, llama, vit)")],
    swap: Annotated[
        list[str], typer.Option(help="what to put in: 'srelu(delta=0.05, learn=delta)'; may be given again")
    ],
    replacing: Annotated[str | None, typer.Option(help="the function to replace, such as gelu; default any")] = None,
    where: Annotated[str | None, typer.Option(help="a pattern for the paths of the sites, such as '*.mlp.act'")] = None,
    learn: Annotated[str, typer.Option(help="parameters to learn, with commas between, or all")] = "",
    batch: Annotated[int | None, typer.Option(min=1, help="default 64 on a GPU, 8 on a CPU")] = None,
    image: Annotated[int | None, typer.Option(min=1, help="side of the images; default the model's own")] = None,
    length: Annotated[int, typer.Option(min=1, help="tokens in a text")] = 128,
    config: Annotated[list[str] | None, typer.Option(help="built with KEY=NUMBER instead; may be given again")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    dtype: Annotated[str, typer.Option(help="bf16, f16, f32 or f64")] = "f32",
    compile: Annotated[bool, typer.Option("--compile", help="through torch.compile, both of them")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="samples of each call")] = 15,
    seconds: Annotated[float, typer.Option(min=0.01, help="time for each call; a slow one gets fewer samples")] = 5.0,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default as torch has it")] = None,
    json: RecordFile = None,
) -> None:
    """Step time, memory and output change of a whole model before and after swaps, with random weights."""
    from ..measure import model_speed
    from ..measure.built_models import Shape, read_config
    from ..measure.speed import choose_device
    from .model_table import print_model
    from .screen import progress_line

    chosen = choose_device(device)
    settings = model_speed.Settings(
        model=model,
        swap=swap[0],
        others=tuple(swap[1:]),
        device=chosen,
        shape=Shape(batch=batch or (64 if chosen.type == "cuda" else 8), image=image, length=length),
        replacing=replacing,
        where=where,
        learn=several(learn),
        dtype=dtype,
        compile=compile,
        config=read_config(config or []),
        repeats=repeats,
        seconds_per_call=seconds,
        **({} if threads is None else {"threads": threads}),
    )
    with progress_line("model:") as report:
        record = model_speed.measure(settings, command=command_line(), report=report)
    if json is not None:
        record.write(json)
    print_model(record)


@bench.command("replicas")
def bench_replicas(
    counts: Annotated[str, typer.Option(help="numbers of replicas; default 1,12,48,240 (CPU: 1,12)")] = "",
    widths: Annotated[str, typer.Option(help="of the network; default 784,1200,1200,10 (CPU: 64,128,128,10)")] = "",
    activation: Annotated[str, typer.Option(help="its activation")] = "relu",
    batch: Annotated[int, typer.Option(min=1, help="examples in a step of each replica")] = 32,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    steps: Annotated[int, typer.Option(min=1, help="steps in a sample")] = 200,
    repeats: Annotated[int, typer.Option(min=1, help="samples of each")] = 5,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default as torch has it")] = None,
    precision: Annotated[str, typer.Option(help="of float32 products: highest, or high for TF32")] = "highest",
    json: RecordFile = None,
) -> None:
    """Time a training step of many replicas at once, beside as many models one after the other."""
    from ..measure import replica_speed
    from ..measure.speed import choose_device
    from .replicas_table import print_replicas
    from .screen import progress_line

    chosen = choose_device(device)
    on_gpu = chosen.type == "cuda"
    settings = replica_speed.Settings(
        device=chosen,
        counts=_whole_numbers("--counts", counts) or ((1, 12, 48, 240) if on_gpu else (1, 12)),
        widths=_whole_numbers("--widths", widths) or (replica_speed.LARGE if on_gpu else replica_speed.SMALL),
        activation=activation,
        batch=batch,
        steps=steps,
        repeats=repeats,
        precision=precision,
        **({} if threads is None else {"threads": threads}),
    )
    with progress_line("replicas:") as report:
        record = replica_speed.measure(settings, command=command_line(), report=report)
    if json is not None:
        record.write(json)
    print_replicas(record)


@study.command("hardening")
def study_hardening(
    data: Annotated[Path | None, typer.Option(help="the folder of the data sets; default $SOFTKNEE_DATA")] = None,
    only: Annotated[str, typer.Option(help="any of digits,fashion-mnist; default both")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds")] = 3,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="passes over the training data; default by data set")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    out: Annotated[Path | None, typer.Option(help="the folder for checkpoints and the table in Markdown")] = None,
    json: RecordFile = None,
) -> None:
    """Train free, hardened and ReLU networks; compare them before and after ReLU takes the activation's place."""
    from ..files import write_whole
    from ..lab import hardening_study
    from ..lab.hardening_table import hardening_markdown
    from .hardening_table import print_hardening
    from .screen import progress_bar

    settings = hardening_study.Settings(
        tasks=hardening_study.choose_tasks(several(only), epochs=epochs),
        seeds=tuple(range(seeds)),
        device=device,
        data=data,
        out=out,
    )
    with progress_bar("training", total=hardening_study.steps(settings)) as advance:
        record = hardening_study.run(settings, command=command_line(), advance=advance).record
    if json is not None:
        record.write(json)
    if out is not None:
        write_whole(out / "hardening.md", hardening_markdown(record), what="table")
    print_hardening(record)


@study.command("language")
def study_language(
    data: Annotated[Path | None, typer.Option(help="the folder of the data sets; default $SOFTKNEE_DATA")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds")] = 3,
    train_steps: Annotated[int, typer.Option("--steps", min=4, help="training steps")] = 2000,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: RecordFile = None,
    keep: Keep = None,
) -> None:
    """Train a small GPT-2 on characters; put ReLU in the place of GELU, at once and layer by layer."""
    from ..lab import language_study
    from .screen import progress_bar

    recipe = language_study.Recipe(steps=train_steps)
    settings = language_study.Settings(recipe=recipe, seeds=tuple(range(seeds)), device=device, data=data)
    with kept_in(keep, json) as place, progress_bar("training", total=language_study.steps(settings)) as advance:
        record = language_study.run(settings, command=command_line(), advance=advance, keep=place)
    write_record(record, json, keep=keep)
    typer.echo(language_study.language_markdown(record), nl=False)


@app.command("claims")
def claims(
    file: Annotated[Path | None, typer.Argument(help="with --json: write the record here, not on the screen")] = None,
    json: Annotated[bool, typer.Option("--json", help="print the record as JSON, and nothing else")] = False,
    paper: Annotated[str, typer.Option(help="any of mollification,smelu,lambda_gelu,eafo,squaf; default all")] = "",
    docs: Annotated[Path | None, typer.Option(help="write the page of the documentation to this file")] = None,
    empirical: Annotated[
        bool, typer.Option("--empirical", help="what only training can test, by stored records")
    ] = False,
    results: Annotated[Path, typer.Option(help="with --empirical: the folder of finished studies")] = Path(
        "docs/evidence"
    ),
) -> None:
    """Check every mathematical claim of the papers; code 1 if a verdict is not the one on record.

    With --empirical, judge what the papers found by training, by the records of finished studies.
    """
    from ..lab import ledger
    from .claims_table import print_claims
    from .screen import progress_bar

    if file is not None and not json:
        raise ParameterError(f"The file {file.name!r} is for the record: write it with --json {file.name}.")
    if docs is not None and paper:
        raise ParameterError("The page holds the claims of every paper: leave out --paper to write it.")
    if empirical:
        from .evidence_table import judge_records

        judge_records(results, papers=several(paper), file=file, json=json, docs=docs, command=command_line())
        return
    found = ledger.find(several(paper))
    with progress_bar("checking", total=len(found)) as advance:
        entries = ledger.run(found, advance=advance)
    if docs is not None:
        ledger.write_page(entries, docs)
    if json and file is not None:
        ledger.record(entries, command=command_line()).write(file)
    if json and file is None:
        typer.echo(ledger.record(entries, command=command_line()).to_json(), nl=False)
    else:
        print_claims(entries)
    raise typer.Exit(0 if all(one.as_expected for one in entries) else 1)


@app.command("deploy-check")
def deploy_check(
    checkpoints: Annotated[
        list[Path], typer.Argument(help="folders of checkpoints, as `study hardening --out` writes them")
    ],
    data: Annotated[Path | None, typer.Option(help="the folder of the data sets; default $SOFTKNEE_DATA")] = None,
    json: RecordFile = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown instead of a table")] = False,
    points: Annotated[int, typer.Option(min=0, help="test points to ask Marabou about")] = 10,
    eps: Annotated[float, typer.Option(help="how far each input may move")] = 0.05,
    seconds: Annotated[float, typer.Option(help="time for each point")] = 20.0,
    seed: Annotated[int, typer.Option(help="draws the points")] = 0,
) -> None:
    """What ONNX, int8, pruning and Marabou make of a trained network, and of the same network with ReLU.

    Several checkpoints are summarised: one line for each network and activation, over the seeds.
    """
    from ..lab.deploy import check_several, deploy_table, summary_record, summary_tables
    from .deploy_table import print_deploy
    from .screen import progress_line

    with progress_line("checking") as report:
        checked = check_several(
            checkpoints, data=data, points=points, eps=eps, seconds_per_point=seconds, seed=seed, report=report
        )
    if len(checked) == 1:
        record, tables = checked[0].report.record(command=command_line()), [deploy_table(checked[0].report)]
    else:
        record = summary_record(checked, command=command_line())
        tables = summary_tables(record)
    if json is not None:
        record.write(json)
    for table in tables:
        print_deploy(table, markdown=markdown)


@app.command("gallery")
def gallery(
    out: Annotated[Path, typer.Option(help="the folder to write into")] = Path("docs/zoo"),
    only: Annotated[str, typer.Option(help="function names with commas between; default all, and the index")] = "",
) -> None:
    """Draw f, f' and f'' of every function and write its page: formulas, claims, certified constants."""
    from ..lab import gallery
    from .screen import progress_line

    with progress_line("drawing") as report:
        written = gallery.write(out, only=several(only), report=report)
    typer.echo(f"{len(written)} files written to {out}.")


@app.command("design")
def design(
    text: Annotated[str, typer.Argument(help="a formula, a call such as 'mollify(relu, box, width=0.1)', or a file")],
    param: Annotated[
        list[str] | None, typer.Option(help="a parameter: beta=1.0, or g=0.1:real; may be given again")
    ] = None,
    name: Annotated[str | None, typer.Option(help="what to call the result")] = None,
    plot: Annotated[Path | None, typer.Option(help="the .png, .svg or .html to draw; default NAME.html")] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="draw nothing")] = False,
    save: Annotated[Path | None, typer.Option(help="write the definition to this .json file")] = None,
) -> None:
    """Make an activation from a text; print its closed form and its proven constants, draw it, save it."""
    from .design_command import run

    run(text, param=param or [], name=name, plot=None if no_plot else (plot or Path()), save=save)


app.command("compare")(compare)
app.command("fits")(fits)
app.command("report")(report)
app.command("surface")(surface)
app.command("workbench")(workbench)


def _whole_numbers(option: str, text: str) -> tuple[int, ...]:
    parts = several(text)
    if not all(part.isdecimal() for part in parts):
        raise ParameterError(f"{option} takes whole numbers with commas between, such as 1,12, and {text!r} was given.")
    return tuple(int(part) for part in parts)
