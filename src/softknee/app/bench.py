"""`softknee bench`: what activations cost, on kernels, in models, in training and on the wire."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..errors import ParameterError
from ..lab.table import Table
from ..measure.record import Quantity, Record
from .screen import RecordFile, command_line, console_of, numbers, print_table, progress_line, several

bench = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)

Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; default as torch has it")]
Samples = Annotated[int, typer.Option(min=1, help="samples of each")]
CallSamples = Annotated[int, typer.Option(min=1, help="samples of each call")]
CallSeconds = Annotated[float, typer.Option(min=0.01, help="time for each call; a slow one gets fewer samples")]


def _measure(what: str, measure: Callable[..., Record], *args: Any, json: Path | None) -> Record:
    """The record of a benchmark, measured with a progress line and written to the file."""
    with progress_line(what) as report:
        record = measure(*args, command=command_line(), report=report)
    if json is not None:
        record.write(json)
    return record


def _threads(count: int | None) -> dict[str, int]:
    return {} if count is None else {"threads": count}


@bench.command("kernels")
def bench_kernels(
    device: Device = "auto",
    elements: Annotated[str | None, typer.Option(help="such as 64M; default 64M on a GPU, 4M on a CPU")] = None,
    dtype: Annotated[str | None, typer.Option(help="any of bf16,f16,f32,f64; default bf16,f32 (CPU: f32)")] = None,
    only: Annotated[str, typer.Option(help="function names with commas between; default all")] = "",
    variants: Annotated[str, typer.Option(help="variant names with commas between; default all")] = "",
    repeats: CallSamples = 25,
    seconds: CallSeconds = 2.0,
    threads: Threads = None,
    json: RecordFile = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown instead of a table")] = False,
) -> None:
    """Time every function, forward and backward, as a multiple of copying the same tensor."""
    from ..lab.bench import speed

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
        **_threads(threads),
    )
    for table in speed.speed_tables(_measure("measuring", speed.measure, settings, json=json)):
        print_table(table, markdown=markdown)


@bench.command("calls")
def bench_calls(
    device: Device = "auto",
    only: Annotated[str, typer.Option(help="function names with commas between; default ten")] = "",
    calls: Annotated[int, typer.Option(min=1, help="calls in a row")] = 400,
    repeats: Samples = 9,
    threads: Threads = None,
    json: RecordFile = None,
) -> None:
    """Time what a call costs its host, beside nn.GELU, nn.PReLU and F.gelu."""
    from ..lab.bench import calls as host
    from ..lab.bench.speed import choose_device

    chosen, functions = choose_device(device), several(only) or host.FUNCTIONS
    settings = host.Settings(device=chosen, functions=functions, calls=calls, repeats=repeats, **_threads(threads))
    print_table(host.calls_table(_measure("calls:", host.measure, settings, json=json)))


@bench.command("model")
def bench_model(
    model: Annotated[str, typer.Argument(help="timm:NAME, or transformers:KIND (bert, distilbert, gpt2, llama, vit)")],
    swap: Annotated[
        list[str], typer.Option(help="what to put in: 'srelu(delta=0.05, learn=delta)'; may be given again")
    ],
    replacing: Annotated[str | None, typer.Option(help="the function to replace, such as gelu; default any")] = None,
    where: Annotated[str | None, typer.Option(help="a pattern for the paths of the sites, such as '*.mlp.act'")] = None,
    learn: Annotated[str, typer.Option(help="parameters to learn, with commas between, or all")] = "",
    save_output: Annotated[
        bool, typer.Option("--save-output", help="each swap with save='output' as well, which holds less")
    ] = False,
    batch: Annotated[int | None, typer.Option(min=1, help="default 64 on a GPU, 8 on a CPU")] = None,
    image: Annotated[int | None, typer.Option(min=1, help="side of the images; default the model's own")] = None,
    length: Annotated[int, typer.Option(min=1, help="tokens in a text")] = 128,
    config: Annotated[list[str] | None, typer.Option(help="built with KEY=NUMBER instead; may be given again")] = None,
    device: Device = "auto",
    dtype: Annotated[str, typer.Option(help="bf16, f16, f32 or f64")] = "f32",
    compile: Annotated[bool, typer.Option("--compile", help="through torch.compile, both of them")] = False,
    repeats: CallSamples = 15,
    seconds: CallSeconds = 5.0,
    threads: Threads = None,
    json: RecordFile = None,
) -> None:
    """Step time, memory and output change of a whole model before and after swaps, with random weights."""
    from ..lab.bench import models
    from ..lab.bench.speed import choose_device

    chosen = choose_device(device)
    settings = models.Settings(
        model=model,
        swap=swap[0],
        others=tuple(swap[1:]),
        device=chosen,
        shape=models.Shape(batch=batch or (64 if chosen.type == "cuda" else 8), image=image, length=length),
        replacing=replacing,
        where=where,
        learn=several(learn),
        save_output=save_output,
        dtype=dtype,
        compile=compile,
        config=models.read_config(config or []),
        repeats=repeats,
        seconds_per_call=seconds,
        **_threads(threads),
    )
    print_model(_measure("model:", models.measure, settings, json=json))


@bench.command("gated")
def bench_gated(
    tokens: Annotated[int, typer.Option(min=1, help="rows")] = 16384,
    hidden: Annotated[int, typer.Option(min=1, help="numbers in a row")] = 3072,
    dtype: Annotated[str, typer.Option(help="bf16, f16, f32 or f64")] = "bf16",
    device: Device = "auto",
    repeats: CallSamples = 25,
    seconds: CallSeconds = 2.0,
    json: RecordFile = None,
) -> None:
    """Time act(a) * b, as language models use it, beside torch's own and Liger-Kernel's where that is installed."""
    from ..lab.bench import gated
    from ..lab.bench.speed import DTYPES, choose_device

    if dtype not in DTYPES:
        raise ParameterError(f"There is no dtype called {dtype!r} to measure: it is {', '.join(DTYPES)}.")
    settings = gated.Settings(
        device=choose_device(device),
        tokens=tokens,
        hidden=hidden,
        dtype=dtype,
        repeats=repeats,
        seconds_per_call=seconds,
    )
    print_table(gated.gated_table(_measure("gated:", gated.measure, settings, json=json)))


@bench.command("replicas")
def bench_replicas(
    counts: Annotated[str, typer.Option(help="numbers of replicas; default 1,12,48,240 (CPU: 1,12)")] = "",
    widths: Annotated[str, typer.Option(help="of the network; default 784,1200,1200,10 (CPU: 64,128,128,10)")] = "",
    activation: Annotated[str, typer.Option(help="its activation")] = "relu",
    batch: Annotated[int, typer.Option(min=1, help="examples in a step of each replica")] = 32,
    device: Device = "auto",
    steps: Annotated[int, typer.Option(min=1, help="steps in a sample")] = 200,
    repeats: Samples = 5,
    threads: Threads = None,
    precision: Annotated[str, typer.Option(help="of float32 products: highest, or high for TF32")] = "highest",
    json: RecordFile = None,
) -> None:
    """Time a training step of many replicas at once, and of as many models one after the other."""
    from ..lab.bench import replicas
    from ..lab.bench.speed import choose_device

    chosen = choose_device(device)
    on_gpu = chosen.type == "cuda"
    settings = replicas.Settings(
        device=chosen,
        counts=_whole_numbers("--counts", counts) or ((1, 12, 48, 240) if on_gpu else (1, 12)),
        widths=_whole_numbers("--widths", widths) or (replicas.LARGE if on_gpu else replicas.SMALL),
        activation=activation,
        batch=batch,
        steps=steps,
        repeats=repeats,
        precision=precision,
        **_threads(threads),
    )
    print_replicas(_measure("replicas:", replicas.measure, settings, json=json))


def _whole_numbers(option: str, text: str) -> tuple[int, ...]:
    parts = several(text)
    if not all(part.isdecimal() for part in parts):
        raise ParameterError(f"{option} takes whole numbers with commas between, such as 1,12, and {text!r} was given.")
    return tuple(int(part) for part in parts)


_MOST_PATHS = 3  # all of them are in the record


def _print_failures(console: Console, record: Record, name: Callable[[Mapping[str, Any]], str]) -> None:
    for row in record.rows:
        if "not_run" in row:
            console.print(f"{name(row)}: {row['not_run']}", style="red", markup=False)


def _machine(record: Record) -> str:
    settings = record.settings
    gpu = record.hardware.gpu if settings["device"] == "cuda" else f"CPU, {settings['threads']} threads"
    return gpu or settings["device"]


def print_model(record: Record) -> None:
    """Times, memory and parameters before and after, then the sites."""
    console = console_of()
    rows = list(record.rows)
    if len(rows) > 2:
        _print_several(console, record)
        return
    before, after = rows
    lines = []
    for label, key in (("inference, ms", "forward"), ("training step, ms", "step")):
        first, second = before.get(key), after.get(key)
        lines.append((label, _time(first), _time(second), _ratio(_value(first), _value(second))))
    for label, key in (("held for backward, MiB", "held"), ("peak of a step, MiB", "peak")):
        first, second = before.get(key), after.get(key)
        if key == "peak" and first is None and second is None:
            lines.append((label, "not measured", "not measured", ""))
        else:
            lines.append((label, _mib(first), _mib(second), _ratio(first, second)))
    added = after["parameters"] - before["parameters"]
    counts = [f"{row['parameters']:,}" for row in rows]
    lines.append(("parameters", *counts, f"{added:+,}" if added else "same"))
    print_table(Table(title=_title(record), head=("", "before", "after", "ratio"), rows=lines))
    if "peak" not in before and record.settings["device"] != "cuda":
        console.print("Peak memory is counted by CUDA's allocator; a CPU's keeps no such count.", style="dim")
    if "output_change" in after:
        console.print(
            f"Largest change of an output before any training: {after['output_change']:.3g}, "
            f"{after['relative_change']:.2%} of the largest output (random weights)."
        )
    _print_failures(console, record, lambda row: row["variant"])
    _print_sites(console, after)


def _print_several(console: Console, record: Record) -> None:
    """One line for each swap, with ratios to the model as it is built."""
    before = record.rows[0]
    head = ("", "inference, ms", "ratio", "training step, ms", "ratio", "peak, MiB", "ratio", "parameters")
    lines = []
    for row in record.rows:
        times = [
            text
            for key in ("forward", "step")
            for text in (_time(row.get(key)), _ratio(_value(before.get(key)), _value(row.get(key))))
        ]
        memory = [_mib(row.get("peak")), _ratio(before.get("peak"), row.get("peak"))]
        added = row["parameters"] - before["parameters"]
        lines.append((row["variant"], *times, *memory, f"{added:+,}" if added else f"{row['parameters']:,}"))
    print_table(Table(title=_title(record), head=head, rows=lines))
    _print_failures(console, record, lambda row: row["variant"])


def _print_sites(console: Console, after: Mapping[str, Any]) -> None:
    changed, skipped = after.get("changed", ()), after.get("skipped", ())
    console.print(f"{len(changed)} sites changed, {len(skipped)} left as they were.")
    groups: dict[str, list[str]] = {}
    for site in changed:
        groups.setdefault(f"{site['was']} → {site['now']}", []).append(site["path"])
    for site in skipped:
        groups.setdefault(f"left, because {site['reason']}", []).append(f"{site['path']} ({site['activation']})")
    for what, paths in groups.items():
        more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
        console.print(f"  {what}: {', '.join(paths[:_MOST_PATHS])}{more}", markup=False)
    for note in after.get("notes", ()):
        console.print(note, markup=False)


def _title(record: Record) -> str:
    settings = record.settings
    shapes = ", ".join("x".join(map(str, shape)) for shape in settings["inputs"].values())
    how = ", compiled" if settings["compile"] else ""
    what = f"{1 + len(settings['others'])} swaps" if settings.get("others") else settings["swap"]
    return f"{settings['model']}, {what}: {shapes} in {settings['dtype']} on {settings['device']}{how}"


def _time(quantity: Quantity | None) -> str:
    return "-" if quantity is None else quantity.text(2)


def _value(quantity: Quantity | None) -> float | None:
    return None if quantity is None else quantity.value


def _mib(count: int | None) -> str:
    return "-" if count is None else f"{count / 2**20:,.1f}"


def _ratio(before: float | None, after: float | None) -> str:
    return "" if not before or after is None else f"{after / before:.3f}"


def print_replicas(record: Record) -> None:
    """One line for each number of replicas: a step of all, the same models in a row, and the gain."""
    console = console_of()
    settings = record.settings
    network = "-".join(str(width) for width in settings["widths"])
    title = f"{network}, {settings['activation']}, batch {settings['batch']}, on {_machine(record)}"
    lines = [
        (row["count"], "not run", row["in_a_row"].text(2), "")
        if "not_run" in row
        else (row["count"], row["step"].text(3), row["in_a_row"].text(2), f"{row['gain'].value:.1f}x")
        for row in record.rows
    ]
    head = ("replicas", "one step of all, ms", "plain loop, in a row, ms", "gain")
    print_table(Table(title=title, head=head, rows=lines, align="rrrr"))
    _print_failures(console, record, lambda row: f"{row['count']} replicas")
    console.print(f"One model in a plain loop: {record.rows[0]['one_eager'].text(3)} ms a step.", markup=False)


@bench.command("epoch")
def bench_epoch(
    model: Annotated[str, typer.Argument(help="timm:NAME, or transformers:vit")] = "timm:vit_tiny_patch16_224",
    image: Annotated[int, typer.Option(min=1, help="side of the images")] = 32,
    config: Annotated[
        list[str] | None, typer.Option(help="built with KEY=NUMBER; may be given again; a ViT has patch_size=4")
    ] = None,
    swap: Annotated[str | None, typer.Option(help="what to put in, such as 'srelu(delta=0.001)'")] = None,
    counts: Annotated[str, typer.Option(help="numbers of models trained at once")] = "1,3",
    augment: Annotated[str, typer.Option(help="any of crop-flip,full")] = "crop-flip,full",
    examples: Annotated[int, typer.Option(min=1, help="images in an epoch")] = 50_000,
    batch: Annotated[int, typer.Option(min=1, help="images in a step of each model")] = 256,
    steps: Annotated[int | None, typer.Option(min=1, help="how many are timed; default those of an epoch")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="of the whole training whose seconds are computed")] = 100,
    device: Device = "auto",
    precision: Annotated[
        str | None, typer.Option(help="bfloat16 or float32; default bfloat16 on a GPU, else float32")
    ] = None,
    repeats: Samples = 2,
    no_plain: Annotated[bool, typer.Option("--no-plain", help="leave the plain loop out")] = False,
    json: RecordFile = None,
) -> None:
    """Time an epoch of training on images: a plain eager loop, and compiled models trained at once.

    Made for a GPU; a look on a CPU: --counts 1 --batch 32 --steps 2
    """
    from ..lab.bench import epoch
    from ..lab.bench.models import read_config
    from ..lab.bench.speed import choose_device

    chosen = choose_device(device)
    settings = epoch.Settings(
        model=model,
        device=chosen,
        image=image,
        config=read_config(config or []),
        swap=swap,
        counts=_whole_numbers("--counts", counts),
        augment=several(augment),
        examples=examples,
        batch=batch,
        steps=steps,
        epochs=epochs,
        # Many CPUs have no arithmetic in bfloat16: where it is imitated, nine minutes were not enough for a few steps.
        precision=precision or ("bfloat16" if chosen.type == "cuda" else "float32"),
        repeats=repeats,
        plain=not no_plain,
    )
    print_epoch(_measure("epoch:", epoch.measure, settings, json=json))


def print_epoch(record: Record) -> None:
    """One line for each way, number of models and augmentation: a step, a whole training, the start, the ratio."""
    console = console_of()
    settings = record.settings
    swap = f", {settings['swap']}" if settings["swap"] else ""
    side = settings["image"]
    console.print(f"{settings['model']}{swap}, on {_machine(record)}", markup=False)
    title = (
        f"{settings['examples']:,} images of {side} x {side}, batch {settings['batch']}, {settings['precision']}, "
        f"{settings['steps_of_an_epoch']} steps an epoch"
    )
    head = ("way", "models", "augmentation", "step of all, ms", f"{settings['epochs']} epochs, s", "start, s", "ratio")
    lines = []
    for row in record.rows:
        which = (row["way"], row["count"], row["augmentation"])
        if "not_run" in row:
            lines.append((*which, "not run", "", "", ""))
        else:
            ratio = f"{row['ratio']:.2f}x" if "ratio" in row else ""
            lines.append((*which, row["step"].text(2), row["run"].text(0), f"{row['start']:.1f}", ratio))
    print_table(Table(title=title, head=head, rows=lines, align="lrlrrrr"))
    _print_failures(console, record, lambda row: f"{row['way']}, {row['count']} models, {row['augmentation']}")
    if settings["steps_timed"] < settings["steps_of_an_epoch"]:
        console.print(
            f"The epochs are extrapolated from {settings['steps_timed']} of {settings['steps_of_an_epoch']} steps.",
            markup=False,
        )
    if record.baseline is not None:
        how = "with autocast in bfloat16" if settings["precision"] == "bfloat16" else "in float32"
        console.print(
            f"The plain loop trains one model, eagerly, {how}: AdamW, clipped gradients, crop and flip on the device; "
            "the ratio is how much longer as many models take one after the other in that loop.",
            style="dim",
            markup=False,
        )


@bench.command("wire")
def bench_wire(
    device: Device = "auto",
    rates: Annotated[str, typer.Option(help="weights of the rate penalty")] = "0,0.1,0.3",
    epochs: Annotated[int, typer.Option(min=1, help="passes over the digits")] = 15,
    elements: Annotated[int | None, typer.Option(min=1, help="activations to code; default 16M (CPU: 4M)")] = None,
    repeats: Samples = 9,
    forms: Annotated[str, typer.Option(help="any of rans,huffman,packed,bfloat16; default all")] = "",
    threads: Threads = None,
    json: RecordFile = None,
) -> None:
    """Train a CNN over two processes with coded activations between; time the coders; say which link each is for."""
    from ..lab.bench import wire
    from ..lab.bench.speed import choose_device
    from ..lab.data.images import load_split

    chosen = choose_device(device)
    settings = wire.Settings(
        device=chosen,
        rates=numbers("--rates", rates),
        epochs=epochs,
        elements=elements or (16_000_000 if chosen.type == "cuda" else 4_000_000),
        repeats=repeats,
        forms=several(forms) or wire.FORMS,
        **_threads(threads),
    )
    record = _measure("wire:", wire.measure, settings, load_split("digits"), json=json)
    for table in wire.wire_tables(record):
        print_table(table)
