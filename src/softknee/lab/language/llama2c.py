"""A checkpoint in llama2.c's .bin layout as a LlamaForCausalLM of transformers. Numbers only: nothing is unpickled.

The file is seven 32-bit numbers (width, hidden width, layers, heads, key heads, vocabulary, context; the vocabulary is
negative where the output has weights of its own) and then float32 arrays, each for all layers at once:

    embedding | attention norms | q | k | v | o | feed-forward norms | gate | down | up | last norm | cosines | sines

Two facts make it another layout than transformers': the rotation of llama2.c turns neighbouring numbers (2i, 2i + 1)
of a head, that of transformers turns (i, i + half), so the rows of q and k are put in another order; and its tables of
cosines and sines are left out, because they follow from the context alone. That they do is checked.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import DataError
from ..data.files import read_bytes
from .tools import transformers

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
        found = {
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
        return found if self.tied else found | {"output": (self.vocabulary, w)}


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
