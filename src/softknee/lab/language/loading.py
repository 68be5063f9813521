"""Language models and their tokenizers from the disk; the network is asked only where a hub path is named.

    load_language_model("folder")                    # config.json and *.safetensors, as transformers writes them
    load_language_model("stories15M.bin.xz")         # llama2.c's layout
    load_language_model("hub:EleutherAI/pythia-2.8b")  # from the hub of transformers, which may download

A model in a folder is read with `local_files_only`, from safetensors alone (the older .bin files are pickles) and
without any code that lies beside it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import DataError
from .gpt2_tokenizer import load_gpt2_tokenizer
from .llama2c import load_llama2c
from .story_tokenizer import read_story_tokenizer
from .tools import transformers

HUB = "hub:"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A model with its tokenizer, and what it is called in a record."""

    name: str
    model: Any
    tokenizer: Any

    @property
    def context(self) -> int:
        """How many tokens the model takes at once."""
        return int(self.model.config.max_position_embeddings)


def load_language_model(
    place: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    check: bool = True,
) -> LanguageModel:
    """A causal language model of transformers in float32, with its tokenizer.

    Args:
        place: a folder, a llama2.c checkpoint, or `hub:` and the name of a model.
        tokenizer: the folder or file of the tokenizer, where it does not lie with the model.
        check: compare GPT-2's vocabulary, where it is read from encoder.json, with the published one.
    """
    named = os.fspath(place)
    if named.startswith(HUB):
        return _from_hub(named.removeprefix(HUB), tokenizer, check)
    path = Path(named)
    if not path.exists():
        raise DataError(
            f"There is no model at '{path}'. Give a folder with config.json and model.safetensors, a llama2.c "
            f"checkpoint (.bin, .bin.xz), or {HUB}OWNER/NAME to take it from the hub of transformers."
        )
    checkpoints = [path] if path.is_file() else _llama2c_files(path)
    if checkpoints:
        return LanguageModel(
            name=checkpoints[0].name.partition(".")[0],
            model=load_llama2c(checkpoints[0]),
            tokenizer=_story_tokenizer(checkpoints[0].parent, tokenizer),
        )
    if not (path / "config.json").is_file():
        raise DataError(f"'{path}' holds no config.json and no llama2.c checkpoint, so there is no model in it.")
    if not any(path.glob("*.safetensors")):
        raise DataError(
            f"'{path}' holds no .safetensors file. Weights in pytorch_model.bin are a pickle, which is not opened "
            f"here; load them once with transformers and write them with save_pretrained."
        )
    library = transformers("A language model")
    try:
        model = library.AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, use_safetensors=True, trust_remote_code=False, dtype="float32"
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"transformers cannot read the model in '{path}': {error}") from error
    return LanguageModel(
        name=path.resolve().name, model=model.eval(), tokenizer=_tokenizer(path, tokenizer, check=check)
    )


def _from_hub(name: str, tokenizer: str | os.PathLike[str] | None, check: bool) -> LanguageModel:
    """The one way to the network, and only because the caller has named it."""
    library = transformers("A language model from the hub")
    try:
        model = library.AutoModelForCausalLM.from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, dtype="float32"
        )
        found = (
            _padded(library.AutoTokenizer.from_pretrained(name, trust_remote_code=False))
            if tokenizer is None
            else _tokenizer(Path(tokenizer), None, check=check)
        )
    except (OSError, ValueError) as error:
        raise DataError(f"The model '{name}' could not be had from the hub of transformers: {error}") from error
    return LanguageModel(name=name, model=model.eval(), tokenizer=found)


def _tokenizer(folder: Path, given: str | os.PathLike[str] | None, *, check: bool) -> Any:
    """The tokenizer that is given, else the one beside the model, else GPT-2's from the data folder."""
    where = folder if given is None else Path(given)
    if not where.is_dir():
        raise DataError(f"The tokenizer '{where}' is not a folder. Give the one that holds its files.")
    if any((where / name).is_file() for name in _TOKENIZER_FILES):
        library = transformers("A tokenizer")
        try:
            return _padded(library.AutoTokenizer.from_pretrained(where, local_files_only=True, trust_remote_code=False))
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"transformers cannot read the tokenizer in '{where}': {error}") from error
    try:
        return load_gpt2_tokenizer(where, check=check)
    except DataError as error:
        raise DataError(
            f"No tokenizer was found: '{where}' holds no tokenizer.json, and {str(error)[0].lower()}{str(error)[1:]} "
            f"Name its folder with --tokenizer."
        ) from error


def _padded(tokenizer: Any) -> Any:
    """GPT-2 and Pythia have no sign for padding; it is masked, so the end of a text serves."""
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _llama2c_files(folder: Path) -> list[Path]:
    """The checkpoint in a folder that holds no model of transformers."""
    if (folder / "config.json").exists():
        return []
    names = sorted(
        one
        for one in folder.iterdir()
        if one.name.removesuffix(".xz").removesuffix(".gz").endswith(".bin") and not one.name.startswith("tokenizer")
    )
    if len(names) > 1:
        raise DataError(f"'{folder}' holds several checkpoints, {names[0].name} and others. Name one of them.")
    return names


def _story_tokenizer(folder: Path, given: str | os.PathLike[str] | None) -> Any:
    if given is not None and Path(given).is_file():
        return read_story_tokenizer(given)
    where = folder if given is None else Path(given)
    found = sorted(where.glob("tokenizer*.bin*")) if where.is_dir() else []
    if not found:
        raise DataError(
            f"No llama2.c tokenizer (tokenizer.bin, also .gz) was found in '{where}'. It comes with llama2.c; name it "
            f"with --tokenizer."
        )
    return read_story_tokenizer(found[0])
