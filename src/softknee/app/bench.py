"""`softknee bench`: what activations cost, on kernels, in models, in training and on the wire."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..measure.record import Record
from .screen import RecordFile, command_line, print_table, progress_line, several, several_numbers

bench = typer.Typer(
    help="Measure speed and memory: kernels, calls, model, gated, memory, replicas, epoch, kan, wire.",
    no_args_is_help=True,
)

Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; default as torch has it")]
Samples = Annotated[int, typer.Option(min=1, help="samples of each")]
CallSamples = Annotated[int, typer.Option(min=1, help="samples of each call")]
CallSeconds = Annotated[float, typer.Option(min=0.01, help="time for each call; a slow one gets fewer samples")]
Dtype = Annotated[str, typer.Option(help="bf16, f16, f32 or f64")]
Markdown = Annotated[bool, typer.Option("--markdown", help="print Markdown instead of a table")]


def _on_gpu(device: str) -> bool:
    from ..lab.bench.speed import choose_device

    return choose_device(device).type == "cuda"


def _run(room: Any, *, device: str, json: Path | None, markdown: bool = False, **options: Any) -> None:
    """Measure with a progress line, write the record, print its tables; an option that is None is left to its default.

    room: a module of `lab.bench`, with its Settings, `measure` and `tables`.
    """
    from ..lab.bench.speed import choose_device

    given = {name: value for name, value in options.items() if value is not None}
    settings = room.Settings(device=choose_device(device), **given)
    with progress_line("measuring") as report:
        record: Record = room.measure(settings, command=command_line(), report=report)
    if json is not None:
        record.write(json)
    for table in room.tables(record):
        print_table(table, markdown=markdown)


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
    markdown: Markdown = False,
) -> None:
    """Time every function, forward and backward, as a multiple of copying the same tensor."""
    from ..lab.bench import speed

    on_gpu = _on_gpu(device)
    sizes = {"elements": speed.parse_elements(elements or ("64M" if on_gpu else "4M")), "repeats": repeats}
    chosen = {"dtypes": several(dtype or ("bf16,f32" if on_gpu else "f32")), "functions": several(only)}
    options = {**sizes, **chosen, "variants": several(variants), "seconds_per_call": seconds, "threads": threads}
    _run(speed, device=device, json=json, markdown=markdown, **options)


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
    from ..lab.bench import calls as room

    functions = several(only) or None
    _run(room, device=device, json=json, functions=functions, calls=calls, repeats=repeats, threads=threads)


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
    device: Device = "auto",
    save: Annotated[str, typer.Option(help="what activations keep: input, output, or both words for both")] = "input",
    dtype: Dtype = "f32",
    autocast: Annotated[bool, typer.Option("--autocast", help="weights in f32, computed in bf16 autocast")] = False,
    floor: Annotated[bool, typer.Option("--floor", help="also torch's GELU called from Python")] = False,
    compile: Annotated[
        bool | None, typer.Option(help="only through torch.compile, or only eager; default both")
    ] = None,
    repeats: CallSamples = 15,
    seconds: CallSeconds = 5.0,
    threads: Threads = None,
    json: RecordFile = None,
) -> None:
    """Step time (eager and compiled), memory and output change of a whole model before and after swaps."""
    from ..lab.bench import models

    shape = models.Shape(batch=batch or (64 if _on_gpu(device) else 8), image=image, length=length)
    swaps = {"swap": swap[0], "others": tuple(swap[1:]), "replacing": replacing, "where": where}
    built = {"learn": several(learn), "model": model, "shape": shape, "dtype": dtype, "autocast": autocast}
    built |= {"saves": several(save), "floor": floor}
    ways = (models.EAGER, models.COMPILED) if compile is None else (models.COMPILED if compile else models.EAGER,)
    options = {**swaps, **built, "config": models.read_config(config or []), "repeats": repeats, "threads": threads}
    _run(models, device=device, json=json, seconds_per_call=seconds, ways=ways, **options)


@bench.command("gated")
def bench_gated(
    tokens: Annotated[int, typer.Option(min=1, help="rows")] = 16384,
    hidden: Annotated[int, typer.Option(min=1, help="numbers in a row")] = 3072,
    dtype: Dtype = "bf16",
    device: Device = "auto",
    repeats: CallSamples = 25,
    seconds: CallSeconds = 2.0,
    json: RecordFile = None,
) -> None:
    """Time act(a) * b, as language models use it, beside torch's own and Liger-Kernel's where that is installed."""
    from ..lab.bench import gated

    sizes = {"tokens": tokens, "hidden": hidden, "dtype": dtype, "repeats": repeats}
    _run(gated, device=device, json=json, seconds_per_call=seconds, **sizes)


@bench.command("memory")
def bench_memory(
    only: Annotated[str, typer.Option(help="function names with commas between; default eight")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="rows")] = 16384,
    features: Annotated[int, typer.Option(min=1, help="numbers in a row")] = 768,
    hidden: Annotated[int, typer.Option(min=1, help="numbers in a row between the linear layers")] = 3072,
    dtype: Dtype = "bf16",
    device: Device = "auto",
    repeats: CallSamples = 25,
    seconds: CallSeconds = 1.0,
    json: RecordFile = None,
) -> None:
    """Count what a block of two linear layers holds for its backward pass, with save="input" and save="output"."""
    from ..lab.bench import memory

    sizes = {"tokens": tokens, "features": features, "hidden": hidden, "dtype": dtype, "repeats": repeats}
    _run(memory, device=device, json=json, functions=several(only) or None, seconds_per_call=seconds, **sizes)


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

    on_gpu = _on_gpu(device)
    numbers = several_numbers("--counts", counts, int) or ((1, 12, 48, 240) if on_gpu else (1, 12))
    network = several_numbers("--widths", widths, int) or (replicas.LARGE if on_gpu else replicas.SMALL)
    options = {"activation": activation, "batch": batch, "steps": steps, "repeats": repeats, "precision": precision}
    _run(replicas, device=device, json=json, counts=numbers, widths=network, threads=threads, **options)


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

    # Many CPUs have no arithmetic in bfloat16: where it is imitated, nine minutes were not enough for a few steps.
    precision = precision or ("bfloat16" if _on_gpu(device) else "float32")
    built = {"model": model, "image": image, "config": read_config(config or []), "swap": swap, "precision": precision}
    run = {"counts": several_numbers("--counts", counts, int), "augment": several(augment), "examples": examples}
    often = {"batch": batch, "steps": steps, "epochs": epochs, "repeats": repeats, "plain": not no_plain}
    _run(epoch, device=device, json=json, **built, **run, **often)


@bench.command("kan")
def bench_kan(
    tasks: Annotated[
        str, typer.Option(help="any of product,bessel,elliptic,legendre,incomplete,mnist; default all")
    ] = "",
    models: Annotated[
        str, typer.Option(help="any of squaf,spline,linear,pykan,efficient-kan,fastkan,mlp; default all")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="networks of each kind that are trained")] = 5,
    iterations: Annotated[int, typer.Option(min=1, help="of L-BFGS, for functions")] = 400,
    epochs: Annotated[int, typer.Option(min=1, help="of Adam, for images")] = 10,
    examples: Annotated[int, typer.Option(min=1, help="training images")] = 60_000,
    untrained: Annotated[str, typer.Option(help="networks that are only timed on images")] = "",
    ways: Annotated[str, typer.Option(help="any of eager,graph,compiled; default eager (GPU: eager,graph)")] = "",
    device: Device = "auto",
    repeats: CallSamples = 15,
    seconds: CallSeconds = 5.0,
    threads: Threads = None,
    json: RecordFile = None,
    markdown: Markdown = False,
) -> None:
    """Train KAN layers beside pykan, efficient-kan, FastKAN and an MLP, and time a step of each in turns.

    A look on a CPU: --tasks product --seeds 1 --models squaf,fastkan,mlp
    """
    from ..lab.bench import kan

    chosen = {"tasks": several(tasks) or None, "models": several(models) or None, "untrained": several(untrained)}
    chosen["ways"] = several(ways)
    run = {"seeds": seeds, "iterations": iterations, "epochs": epochs, "examples": examples, "repeats": repeats}
    _run(kan, device=device, json=json, markdown=markdown, seconds_per_call=seconds, threads=threads, **chosen, **run)


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

    elements = elements or (16_000_000 if _on_gpu(device) else 4_000_000)
    coded = {"rates": several_numbers("--rates", rates, float), "elements": elements, "forms": several(forms) or None}
    _run(wire, device=device, json=json, epochs=epochs, repeats=repeats, threads=threads, **coded)
