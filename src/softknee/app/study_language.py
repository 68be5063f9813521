"""`softknee study preference` and `softknee study wikitext`: the papers' language experiments."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ParameterError
from .screen import Keep, RecordFile, announce_smoke, command_line, kept_in, numbers, several, write_record

_MODEL = "a folder of transformers, a llama2.c checkpoint, or hub:OWNER/NAME, which may download"
Data = Annotated[Path | None, typer.Option(help="the data folder; default $SOFTKNEE_DATA")]
Tokenizer = Annotated[Path | None, typer.Option(help="the tokenizer's folder, where it lies apart from the model")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
OwnVocabulary = Annotated[bool, typer.Option("--own-vocabulary", help="take another vocabulary than GPT-2's published")]


def preference(
    model: Annotated[str, typer.Option(help=_MODEL)],
    swap: Annotated[
        list[str], typer.Option(help="an activation beside the model's own: crrelu, 'srelu(delta=0.1)'; also again")
    ],
    data: Annotated[
        Path | None, typer.Option(help="a file of pairs, or the data folder; default $SOFTKNEE_DATA")
    ] = None,
    sets: Annotated[str, typer.Option(help="of the data folder: hh, shp or hh,shp")] = "hh",
    eval_data: Annotated[Path | None, typer.Option(help="a file of pairs to evaluate on; default by name")] = None,
    eval_pairs: Annotated[int, typer.Option(min=1, help="how many pairs to evaluate on")] = 256,
    betas: Annotated[str, typer.Option(help="penalties of DPO; the papers have 0.1,0.2,0.4 and 0.1,1,2,5")] = "0.1",
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds; they decide the order of the pairs")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="passes over the pairs in each stage")] = 1,
    train_steps: Annotated[int | None, typer.Option("--steps", min=1, help="steps of each stage at most")] = None,
    batch: Annotated[int, typer.Option(min=1, help="pairs in a step")] = 32,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="pairs at once; default the batch")] = None,
    learning_rate: Annotated[float, typer.Option(help="of RMSprop in both stages")] = 5e-7,
    warmup: Annotated[int, typer.Option(min=0, help="steps over which the rate rises")] = 150,
    length: Annotated[int, typer.Option(min=2, help="tokens of prompt and reply")] = 512,
    prompt_length: Annotated[int, typer.Option(min=1, help="tokens of a prompt that had to be cut")] = 256,
    backend: Annotated[str, typer.Option(help="own, or trl where it is installed")] = "own",
    tokenizer: Tokenizer = None,
    own_vocabulary: OwnVocabulary = False,
    device: Device = "auto",
    smoke: Annotated[bool, typer.Option("--smoke", help="a few pairs and steps, to see that everything works")] = False,
    json: RecordFile = None,
    keep: Keep = None,
) -> None:
    """Fine-tune a language model, then train it on preferences (DPO), with its own activation and with others."""
    from ..lab.bench.speed import choose_device
    from ..lab.language import Recipe, find_pairs, load_language_model, read_preferences
    from ..lab.language import preference_study as room
    from .screen import progress_bar

    announce_smoke(smoke)
    recipe = Recipe(
        learning_rate=learning_rate,
        warmup=warmup,
        batch=batch,
        micro_batch=micro_batch or batch,
        epochs=epochs,
        steps=train_steps,
        length=length,
        prompt_length=prompt_length,
    )
    settings = room.Settings(
        activations=tuple(swap),
        betas=numbers("--betas", betas),
        seeds=tuple(range(seeds)),
        recipe=recipe,
        evaluation_pairs=eval_pairs,
        backend=backend,
        device=str(choose_device(device)),
    )
    settings = settings.for_smoke() if smoke else settings
    train_files, test_files = find_pairs(data, sets=several(sets))
    test_files = test_files if eval_data is None else [eval_data]
    train, test = room.divide(
        read_preferences(train_files), read_preferences(test_files) if test_files else None, settings
    )
    language = load_language_model(model, tokenizer=tokenizer, check=not own_vocabulary)
    total = room.steps(settings, len(train))
    with kept_in(keep, json) as place, progress_bar("training", total=total) as advance:
        record = room.run(settings, language, train, test, command=command_line(), advance=advance, keep=place)
    write_record(record, json, keep=keep)
    typer.echo(room.preference_markdown(record), nl=False)


def wikitext(
    model: Annotated[str | None, typer.Option(help=f"{_MODEL}; left out: GPT-2s are trained here")] = None,
    swap: Annotated[
        list[str] | None, typer.Option(help="with --model: an activation beside the model's own; may be given again")
    ] = None,
    data: Data = None,
    part: Annotated[str, typer.Option(help="with --model: valid or test")] = "test",
    context: Annotated[int | None, typer.Option(min=2, help="tokens seen at once; default the model's, or 256")] = None,
    stride: Annotated[int | None, typer.Option(min=1, help="with --model: how far the window moves")] = None,
    most: Annotated[int | None, typer.Option(min=2, help="with --model: only the first tokens of the text")] = None,
    train: Annotated[
        str, typer.Option(help="without --model: train, valid or a text file to train on; or several: FILE,valid")
    ] = "train",
    layers: Annotated[int, typer.Option(min=1, help="without --model: layers; GPT-2 small has 12")] = 6,
    width: Annotated[int, typer.Option(min=1, help="without --model: width; GPT-2 small has 768")] = 384,
    heads: Annotated[int, typer.Option(min=1, help="without --model: heads; GPT-2 small has 12")] = 6,
    batch: Annotated[int, typer.Option(min=1, help="texts at once")] = 16,
    train_steps: Annotated[int, typer.Option("--steps", min=4, help="without --model: training steps")] = 2000,
    learning_rate: Annotated[float, typer.Option(help="without --model: of AdamW")] = 1e-3,
    dropout: Annotated[float, typer.Option(min=0, max=1, help="without --model: GPT-2 has 0.1")] = 0.2,
    rows: Annotated[
        str, typer.Option(help="without --model: of gelu, lambda_gelu, srelu and relu")
    ] = "gelu,lambda_gelu,srelu,relu",
    recover: Annotated[int, typer.Option(min=0, help="without --model: steps after the replacement")] = 240,
    layerwise: Annotated[bool, typer.Option(help="without --model: recover layer by layer, too")] = True,
    eager: Annotated[bool, typer.Option("--eager", help="without --model: no CUDA graph of the step")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="without --model: how many seeds")] = 3,
    tokenizer: Tokenizer = None,
    own_vocabulary: OwnVocabulary = False,
    device: Device = "auto",
    smoke: Annotated[
        bool, typer.Option("--smoke", help="the first words, a tiny network, on the CPU: only to see that it runs")
    ] = False,
    json: RecordFile = None,
    keep: Keep = None,
) -> None:
    """Perplexity on WikiText-2 before and after ReLU takes the place of the activations."""
    from ..lab import language_models
    from ..lab.language import load_gpt2_tokenizer, load_language_model, load_wikitext
    from ..lab.language import wikitext_study as room
    from .screen import progress_bar, progress_line

    announce_smoke(smoke)
    check = not own_vocabulary
    if model is not None:
        language = load_language_model(model, tokenizer=tokenizer, check=check)
        with progress_line("reading with") as report:
            record = room.measure_model(
                language,
                load_wikitext(part, data, check=check),
                activations=swap or (),
                text_name=f"WikiText-2 ({part})",
                context=context,
                stride=stride,
                batch=batch,
                most=most,
                device="cpu" if smoke else device,
                smoke=smoke,
                command=command_line(),
                report=report,
            )
        if json is not None:
            record.write(json)
    else:
        if swap or stride or most:
            raise ParameterError("--swap, --stride and --most are for a model that is given with --model.")
        recipe = language_models.Recipe(
            layers=layers,
            width=width,
            heads=heads,
            context=context or 256,
            batch=batch,
            steps=train_steps,
            warmup=min(language_models.Recipe.warmup, max(1, train_steps // 4)),
            learning_rate=learning_rate,
            dropout=dropout,
            recover=recover,
            layerwise=layerwise,
            recorded=not eager,
        )
        settings = language_models.Settings(
            recipe=recipe, seeds=tuple(range(seeds)), device=device, rows=tuple(several(rows))
        )
        settings = room.for_smoke(settings) if smoke else settings
        tokens = room.read_tokens(
            load_gpt2_tokenizer(tokenizer or data, check=check), train=train, folder=data, check=check, smoke=smoke
        )
        with kept_in(keep, json) as place, progress_bar("training", total=language_models.steps(settings)) as advance:
            record = room.train_models(
                settings,
                tokens,
                train_name=_names(train),
                command=command_line(),
                smoke=smoke,
                advance=advance,
                keep=place,
            )
        write_record(record, json, keep=keep)
    typer.echo(room.wikitext_markdown(record), nl=False)


def _names(train: str) -> str:
    """What was trained on, without the folders it lies in."""
    return ", ".join(Path(one).name for one in several(train))
