"""Small files in the formats of the language experiments: a vocabulary, models, pairs, texts."""

import json
import math
import random
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softknee.lab.data.text import from_bytes

END = "<|endoftext|>"


def byte_signs() -> list[str]:
    """The sign that GPT-2 writes for each byte: the byte itself where it can be seen, else one from 256 on."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in seen]
    return [chr(byte) if byte in seen else chr(256 + hidden.index(byte)) for byte in range(256)]


def write_vocabulary(folder: Path) -> Path:
    """encoder.json and vocab.bpe with 256 bytes, three pieces and the end of a text."""
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    pieces = [*byte_signs(), *("".join(pair) for pair in merges), END]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "encoder.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    return folder


def write_gpt2(folder: Path, *, layers: int = 2, context: int = 64) -> Path:
    """A GPT-2 of two layers as transformers writes it, with the small vocabulary beside it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=260, n_positions=context, n_embd=16, n_layer=layers, n_head=2, bos_token_id=259, eos_token_id=259
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    return write_vocabulary(folder)


def dialogue(question: str, reply: str) -> str:
    return f"\n\nHuman: {question}\n\nAssistant: {reply}"


def write_hh(path: Path, count: int) -> Path:
    rows = [
        {
            "chosen": dialogue(f"What is the number {n}?", "The number is the one you say."),
            "rejected": dialogue(f"What is the number {n}?", f"No. {n}"),
        }
        for n in range(count)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


SHP_ROW: dict[str, Any] = {
    "post_id": "a1",
    "domain": "askacademia_train",
    "upvote_ratio": 0.9,
    "history": "How do I cite a website?",
    "c_root_id_A": "x",
    "c_root_id_B": "y",
    "created_at_utc_A": 1,
    "created_at_utc_B": 2,
    "score_A": 8,
    "score_B": 4,
    "human_ref_A": "With its address.",
    "human_ref_B": "Not at all.",
    "labels": 1,
    "seconds_difference": 1.0,
    "score_ratio": 2.0,
}


# -- llama2.c ---------------------------------------------------------------------------------------------

SIZES = {"width": 8, "hidden": 12, "layers": 2, "heads": 2, "key_heads": 1, "vocabulary": 300, "context": 16}


def llama_arrays(*, tied: bool) -> dict[str, Tensor]:
    """Random weights in the order of the file."""
    random = torch.Generator().manual_seed(1)
    w, h, n, head = SIZES["width"], SIZES["hidden"], SIZES["layers"], SIZES["width"] // SIZES["heads"]
    kv = SIZES["key_heads"] * head
    shapes = {
        "embedding": (SIZES["vocabulary"], w), "norm1": (n, w), "q": (n, w, w), "k": (n, kv, w), "v": (n, kv, w),
        "o": (n, w, w), "norm2": (n, w), "gate": (n, h, w), "down": (n, w, h), "up": (n, h, w), "norm": (w,),
    }  # fmt: skip
    arrays = {name: torch.randn(shape, generator=random) * 0.5 for name, shape in shapes.items()}
    angles = [[at / 10000 ** (2 * i / head) for i in range(head // 2)] for at in range(SIZES["context"])]
    arrays["cosines"] = torch.tensor([[math.cos(a) for a in row] for row in angles])
    arrays["sines"] = torch.tensor([[math.sin(a) for a in row] for row in angles])
    if not tied:
        arrays["output"] = torch.randn(shapes["embedding"], generator=random)
    return arrays


def llama_bytes(arrays: dict[str, Tensor]) -> bytes:
    sizes = dict(SIZES, vocabulary=SIZES["vocabulary"] * (-1 if "output" in arrays else 1))
    return struct.pack("<7i", *sizes.values()) + b"".join(array.numpy().tobytes() for array in arrays.values())


def llama_logits(arrays: dict[str, Tensor], tokens: list[int]) -> Tensor:
    """The plain computation of llama2.c, one token after the other, each pair (2i, 2i + 1) of a head turned."""
    heads, head = SIZES["heads"], SIZES["width"] // SIZES["heads"]
    shared = heads // SIZES["key_heads"]

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return weight * x / math.sqrt(float((x * x).mean()) + 1e-5)

    def turn(x: Tensor, at: int) -> Tensor:
        turned = x.clone()
        for i in range(0, len(x), 2):
            c, s = arrays["cosines"][at, i % head // 2], arrays["sines"][at, i % head // 2]
            turned[i], turned[i + 1] = x[i] * c - x[i + 1] * s, x[i] * s + x[i + 1] * c
        return turned

    past: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(SIZES["layers"])]
    results = []
    for at, token in enumerate(tokens):
        x = arrays["embedding"][token].clone()
        for layer in range(SIZES["layers"]):
            y = norm(x, arrays["norm1"][layer])
            q, k = turn(arrays["q"][layer] @ y, at), turn(arrays["k"][layer] @ y, at)
            past[layer].append((k, arrays["v"][layer] @ y))
            out = []
            for h in range(heads):
                part = slice(h // shared * head, (h // shared + 1) * head)
                scores = torch.stack([q[h * head : (h + 1) * head] @ key[part] for key, _ in past[layer]])
                weights = torch.softmax(scores / math.sqrt(head), 0)
                out.append(sum(w * value[part] for w, (_, value) in zip(weights, past[layer], strict=True)))
            x = x + arrays["o"][layer] @ torch.cat(out)
            y = norm(x, arrays["norm2"][layer])
            gate = arrays["gate"][layer] @ y
            x = x + arrays["down"][layer] @ (gate / (1 + torch.exp(-gate)) * (arrays["up"][layer] @ y))
        results.append(arrays.get("output", arrays["embedding"]) @ norm(x, arrays["norm"]))
    return torch.stack(results)


def story_pieces() -> tuple[list[bytes], list[float]]:
    """300 pieces with scores: the 259 of every such file, signs and joined signs, whose scores differ."""
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    more = [" ", *"abcd", "ab", "bc", "abc", " a", "cd", "abcd", "é", "aé", "  ", " ab", "dd", "dda", "bb", "cb"]
    pieces += [item.encode() for item in more]
    scores = [0.0] * 259 + [-100.0 if len(value) == 1 else -float((index * 7) % 19) for index, value in enumerate(more)]
    while len(pieces) < SIZES["vocabulary"]:
        pieces.append(f"unused{len(pieces)}".encode())
        scores.append(-1000.0)
    return pieces, scores


def story_bytes() -> bytes:
    pieces, scores = story_pieces()
    body = b"".join(struct.pack("<fi", score, len(piece)) + piece for piece, score in zip(pieces, scores, strict=True))
    return struct.pack("<i", max(map(len, pieces))) + body


WORDS = random.Random(0).choices(["to be, ", "or ", "not ", "that is ", "the question.\n"], k=150)


TEXT = from_bytes("".join(WORDS).encode())
