"""Language models and their tokenizers from the disk; the network is asked only where a hub path is named.

    load_language_model("folder")                    # config.json and *.safetensors, as transformers writes them
    load_language_model("stories15M.bin.xz")         # llama2.c's layout
    load_language_model("hub:EleutherAI/pythia-2.8b")  # from the hub of transformers, which may download

A model in a folder is read with `local_files_only`, from safetensors alone (the older .bin files are pickles) and
without any code that lies beside it.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import DataError, ParameterError, did_you_mean
from ..data.files import VARIABLE, data_folder, read_bytes
from .tokenizers import load_gpt2_tokenizer, read_story_tokenizer, transformers

_FOLDERS = {"hh": ("hh-rlhf", "hh"), "shp": ("SHP", "shp")}
_SOURCES = {
    "hh": "huggingface.co/datasets/Anthropic/hh-rlhf (harmless-base/train.jsonl.gz and so on), in a folder 'hh-rlhf'",
    "shp": "huggingface.co/datasets/stanfordnlp/SHP (askacademia/train.json and so on), in a folder 'SHP'",
}
_ENDINGS = (".jsonl", ".json")
SETS = tuple(_FOLDERS)


def find_pairs(
    data: str | os.PathLike[str] | None = None, *, sets: Sequence[str] = ("hh",)
) -> tuple[list[Path], list[Path]]:
    """The files to train on and the files to evaluate on; none of the latter where there is no file for that.

    Args:
        data: a file of pairs, which is then all to train on; or the data folder (default SOFTKNEE_DATA).
        sets: of the data folder, any of "hh" and "shp". The name of a file says what it is for: "train" or "test".
    """
    if data is not None and Path(data).is_file():
        return [Path(data)], []
    root = data_folder(data)
    train: list[Path] = []
    test: list[Path] = []
    for name in sets:
        if name not in _FOLDERS:
            raise ParameterError(f"The sets of pairs are 'hh' and 'shp', not {name!r}.{did_you_mean(name, _FOLDERS)}")
        files = _files(root, name)
        train += [file for file in files if "train" in file.name]
        test += [file for file in files if "test" in file.name]
        if not any("train" in file.name for file in files):
            raise DataError(
                f"No file of {name.upper()} to train on was found in '{root}': looked in "
                f"{' and '.join(repr(file) for file in _FOLDERS[name])} for .jsonl and .json files, also .gz, with "
                f"'train' in their names. It is usually had from {_SOURCES[name]}; softknee downloads nothing. Put it "
                f"there, or name another folder with --data or {VARIABLE}."
            )
    return train, test


def _files(root: Path, name: str) -> list[Path]:
    """Every file of pairs below the set's folder, in an order that does not depend on the disk."""
    places = [root / folder for folder in _FOLDERS[name] if (root / folder).is_dir()]
    files = {file for place in places for file in place.rglob("*") if file.is_file()}
    return sorted(file for file in files if file.name.removesuffix(".gz").endswith(_ENDINGS))


_HEADER = struct.Struct("<7i")
_MOST_BYTES = 2**34
_EPSILON, _THETA = 1e-5, 10000.0  # constants of llama2.c, in no file


@dataclass(frozen=True)
class Sizes:
    """The header of a checkpoint."""

    width: int
    hidden: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    context: int
    tied: bool = True

    @property
    def head(self) -> int:
        return self.width // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays of the file in their order."""
        n, w, h, kv = self.layers, self.width, self.hidden, self.key_heads * self.head
        shapes = {
            "embedding": (self.vocabulary, w),
            "attention_norm": (n, w),
            "q": (n, w, w),
            "k": (n, kv, w),
            "v": (n, kv, w),
            "o": (n, w, w),
            "feed_norm": (n, w),
            "gate": (n, h, w),
            "down": (n, w, h),
            "up": (n, h, w),
            "norm": (w,),
            "cosines": (self.context, self.head // 2),
            "sines": (self.context, self.head // 2),
        }
        return shapes if self.tied else shapes | {"output": (self.vocabulary, w)}


def read_llama2c(path: str | os.PathLike[str]) -> tuple[Sizes, dict[str, Tensor]]:
    """The header and the arrays of a checkpoint (.bin, also compressed by xz or gzip), as they stand in the file."""
    content = bytearray(read_bytes(path, what="llama2.c checkpoint", most_bytes=_MOST_BYTES))
    if len(content) < _HEADER.size:
        raise DataError(f"'{path}' ends within its header, so it is no llama2.c checkpoint. Take it anew.")
    numbers = _HEADER.unpack_from(content)
    width, hidden, layers, heads, key_heads, vocabulary, context = numbers
    sizes = Sizes(width, hidden, layers, heads, key_heads, abs(vocabulary), context, tied=vocabulary > 0)
    sound = min(*numbers[:5], sizes.vocabulary, sizes.context) > 0 and max(map(abs, numbers)) < 2**24
    if not sound or sizes.width % sizes.heads or sizes.heads % sizes.key_heads or sizes.head % 2:
        raise DataError(f"'{path}' begins with {numbers}, which are no sizes of a model. It is no llama2.c checkpoint.")
    claimed = _HEADER.size + 4 * sum(math.prod(shape) for shape in sizes.shapes().values())
    if claimed != len(content):
        raise DataError(f"'{path}' has {len(content):,} bytes, and its header asks for {claimed:,}. Take it anew.")
    arrays: dict[str, Tensor] = {}
    at = _HEADER.size
    for name, shape in sizes.shapes().items():
        count = math.prod(shape)
        arrays[name] = torch.frombuffer(content, dtype=torch.float32, count=count, offset=at).reshape(shape)
        at += 4 * count
    angles = torch.outer(
        torch.arange(sizes.context, dtype=torch.float64),
        _THETA ** (-torch.arange(0, sizes.head, 2, dtype=torch.float64) / sizes.head),
    )
    if (arrays["cosines"] - angles.cos()).abs().max() > 1e-2 or (arrays["sines"] - angles.sin()).abs().max() > 1e-2:
        raise DataError(f"'{path}' turns its heads by other angles than llama2.c does; it is of another kind.")
    return sizes, arrays


def load_llama2c(path: str | os.PathLike[str]) -> Any:
    """The checkpoint as a LlamaForCausalLM in float32, in evaluation mode."""
    library = transformers("A llama2.c checkpoint")
    sizes, arrays = read_llama2c(path)
    config = library.LlamaConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.width,
        intermediate_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.key_heads,
        max_position_embeddings=sizes.context,
        rms_norm_eps=_EPSILON,
        rope_theta=_THETA,
        tie_word_embeddings=sizes.tied,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,
    )
    model = library.LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(_state(sizes, arrays), strict=False)
    if unexpected or set(missing) - ({"lm_head.weight"} if sizes.tied else set()):
        raise DataError(f"'{path}': the weights do not fit the model of transformers: {missing} {unexpected}.")
    return model.eval()


def _state(sizes: Sizes, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """The arrays under the names, and in the order of rows, that transformers uses."""
    state = {"model.embed_tokens.weight": arrays["embedding"], "model.norm.weight": arrays["norm"]}
    if not sizes.tied:
        state["lm_head.weight"] = arrays["output"]
    for index in range(sizes.layers):
        at = f"model.layers.{index}."
        state |= {
            f"{at}input_layernorm.weight": arrays["attention_norm"][index],
            f"{at}self_attn.q_proj.weight": halves(arrays["q"][index], sizes.heads),
            f"{at}self_attn.k_proj.weight": halves(arrays["k"][index], sizes.key_heads),
            f"{at}self_attn.v_proj.weight": arrays["v"][index],
            f"{at}self_attn.o_proj.weight": arrays["o"][index],
            f"{at}post_attention_layernorm.weight": arrays["feed_norm"][index],
            f"{at}mlp.gate_proj.weight": arrays["gate"][index],
            f"{at}mlp.down_proj.weight": arrays["down"][index],
            f"{at}mlp.up_proj.weight": arrays["up"][index],
        }
    return state


def halves(weight: Tensor, heads: int) -> Tensor:
    """The rows of each head with the even ones first and the odd ones after them.

    >>> halves(torch.arange(8.0)[:, None], 2).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]
    """
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


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
        encoder = (
            _padded(library.AutoTokenizer.from_pretrained(name, trust_remote_code=False))
            if tokenizer is None
            else _tokenizer(Path(tokenizer), None, check=check)
        )
    except (OSError, ValueError) as error:
        raise DataError(f"The model '{name}' could not be had from the hub of transformers: {error}") from error
    return LanguageModel(name=name, model=model.eval(), tokenizer=encoder)


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
            f"Name its folder (in a recipe, task.tokenizer)."
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
        file
        for file in folder.iterdir()
        if file.name.removesuffix(".xz").removesuffix(".gz").endswith(".bin") and not file.name.startswith("tokenizer")
    )
    if len(names) > 1:
        raise DataError(f"'{folder}' holds several checkpoints, {names[0].name} and others. Name one of them.")
    return names


def _story_tokenizer(folder: Path, given: str | os.PathLike[str] | None) -> Any:
    if given is not None and Path(given).is_file():
        return read_story_tokenizer(given)
    where = folder if given is None else Path(given)
    files = sorted(where.glob("tokenizer*.bin*")) if where.is_dir() else []
    if not files:
        raise DataError(
            f"No llama2.c tokenizer (tokenizer.bin, also .gz) was found in '{where}'. It comes with llama2.c; name it "
            f"(in a recipe, task.tokenizer)."
        )
    return read_story_tokenizer(files[0])
