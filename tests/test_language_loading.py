"""Models, tokenizers and texts of the language experiments, read from files in their own formats."""

import gzip
import json
import lzma
import os
import random
from pathlib import Path

import pytest
import torch

from language_files import (
    END,
    llama_arrays,
    llama_bytes,
    llama_logits,
    story_bytes,
    story_pieces,
    write_gpt2,
    write_vocabulary,
)
from softknee.errors import DataError, ParameterError
from softknee.lab.language.loading import load_language_model, load_llama2c
from softknee.lab.language.text_perplexity import foretell, load_wikitext, replace_by_relu_, text_tokens, token_losses
from softknee.lab.language.tokenizers import load_gpt2_tokenizer, read_story_tokenizer

DATA = os.environ.get("SOFTKNEE_DATA")
real_files = pytest.mark.skipif(not DATA, reason="SOFTKNEE_DATA names no data folder")


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_llama2c_checkpoint_computes_what_llama2c_computes(tmp_path: Path, tied: bool) -> None:
    arrays = llama_arrays(tied=tied)
    (tmp_path / "small.bin.xz").write_bytes(lzma.compress(llama_bytes(arrays)))
    (tmp_path / "tokenizer.bin").write_bytes(story_bytes())
    language = load_language_model(tmp_path)
    tokens = [1, 260, 17, 5, 299, 260, 3]
    with torch.no_grad():
        result = language.model(input_ids=torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(result, llama_logits(arrays, tokens), rtol=1e-4, atol=1e-4)
    assert language.name == "small"
    assert language.context == 16
    assert len(language.tokenizer) == language.model.config.vocab_size


def test_a_damaged_checkpoint_is_a_sentence(tmp_path: Path) -> None:
    whole = llama_bytes(llama_arrays(tied=True))
    turned = dict(llama_arrays(tied=True), cosines=torch.zeros(16, 2))
    cases = {
        "ends within its header": whole[:20],
        "its header asks for": whole[:-4],
        "no sizes of a model": b"\xff" * 100,
        "other angles": llama_bytes(turned),
        "cannot be decompressed": lzma.compress(whole)[:-40],
    }
    for said, content in cases.items():
        (tmp_path / "m.bin").write_bytes(content)
        with pytest.raises(DataError, match=said):
            load_llama2c(tmp_path / "m.bin")


def plain_merging(pieces: list[bytes], scores: list[float], text: str) -> list[int]:
    """llama2.c's own loop: the best of all neighbours is joined, again and again."""
    tokens, numbers = [], {piece: number for number, piece in enumerate(pieces)}
    for sign in f" {text}":
        number = numbers.get(sign.encode())
        tokens += [byte + 3 for byte in sign.encode()] if number is None else [number]
    while True:
        best, where, joined = -1e10, -1, -1
        for at in range(len(tokens) - 1):
            number = numbers.get(pieces[tokens[at]] + pieces[tokens[at + 1]])
            if number is not None and scores[number] > best:
                best, where, joined = scores[number], at, number
        if where < 0:
            return [1, *tokens]
        tokens[where : where + 2] = [joined]


def test_the_story_tokenizer_joins_as_the_plain_loop_does(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.bin.gz").write_bytes(gzip.compress(story_bytes()))
    tokenizer = read_story_tokenizer(tmp_path / "tokenizer.bin.gz")
    assert len(tokenizer) == len(story_pieces()[0])
    draw = random.Random(0)
    for _ in range(200):
        text = "".join(draw.choices("abcdé ☃", k=draw.randrange(1, 25)))
        assert tokenizer.encode(text) == plain_merging(*story_pieces(), text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
    (tmp_path / "cut.bin").write_bytes(story_bytes()[:-3])
    with pytest.raises(DataError, match=r"no whole llama2\.c tokenizer"):
        read_story_tokenizer(tmp_path / "cut.bin")


def test_gpt2s_tokenizer_merges_bytes_by_its_two_files(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "gpt2-tokenizer")
    with pytest.raises(DataError, match=r"not GPT-2's published encoder\.json"):
        load_gpt2_tokenizer(tmp_path)
    tokenizer = load_gpt2_tokenizer(tmp_path, check=False)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("the the é")) == ["the", "Ġthe", "Ġ", "Ã", "©"]
    assert tokenizer.encode(f"a{END}")[-1] == tokenizer.eos_token_id == tokenizer.pad_token_id == 259
    assert tokenizer.decode(tokenizer.encode("then é ☃")) == "then é ☃"


def test_a_folder_of_transformers_is_read_and_pickles_are_not(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "gpt2-tiny")
    language = load_language_model(folder, check=False)
    assert language.name == "gpt2-tiny"
    assert language.model.dtype == torch.float32
    assert not language.model.training
    with pytest.raises(DataError, match="not GPT-2's published"):
        load_language_model(folder)
    (folder / "encoder.json").rename(tmp_path / "encoder.json")
    with pytest.raises(DataError, match=r"No tokenizer was found.*task.tokenizer"):
        load_language_model(folder, check=False)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DataError, match="pickle"):
        load_language_model(folder, check=False)
    with pytest.raises(DataError, match="hub:OWNER/NAME"):
        load_language_model("openai-community/gpt2")
    with pytest.raises(DataError, match=r"no config\.json"):
        load_language_model(tmp_path)


def test_a_damaged_config_is_a_sentence(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({"model_type": "nothing known"}))
    with pytest.raises(DataError, match="transformers cannot read the model"):
        load_language_model(folder, check=False)


def test_windows_foretell_each_token_once_as_a_plain_loop_does(tmp_path: Path) -> None:
    model = load_language_model(write_gpt2(tmp_path), check=False).model
    tokens = torch.randint(250, (45,), generator=torch.Generator().manual_seed(0))
    for context, stride in ((64, None), (16, None), (16, 5), (16, 1)):
        step, expected, counted = stride or context, 0.0, 1
        for start in range(0, 44, step):  # a window at a time, without padding
            seen = tokens[start : start + context]
            with torch.no_grad():
                logs = model(input_ids=seen[None]).logits[0].double().log_softmax(-1)
            last = min(start + context, 44)
            expected -= sum(logs[at - start - 1, tokens[at]].item() for at in range(counted, last + 1))
            counted = last + 1
        loss, count = token_losses(model, tokens, context=context, stride=stride, batch=3)
        assert count == 44
        assert loss == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ParameterError, match="stride of 1"):
        token_losses(model, tokens, context=16, stride=17)


def test_relu_takes_the_place_of_gelu_and_the_perplexity_says_so(tmp_path: Path) -> None:
    language = load_language_model(write_gpt2(tmp_path), check=False)
    text = text_tokens(language.tokenizer, "the end of the story\n" * 5)
    same = foretell(language.model, text, context=32)
    result = replace_by_relu_(language.model, text, context=32)
    assert result.before == same
    assert len(result.sites) == 2
    assert all(isinstance(block.mlp.act, torch.nn.ReLU) for block in language.model.transformer.h)
    assert result.after == foretell(language.model, text, context=32) != same
    assert same.words == 30
    assert same.word_perplexity == pytest.approx(same.perplexity ** (same.tokens / 30))


def test_wikitext_is_counted_in_its_authors_words(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"WikiText-2 \(valid\) has no file"):
        load_wikitext("valid", tmp_path)
    (tmp_path / "wikitext-2").mkdir()
    (tmp_path / "wikitext-2" / "wiki.valid.tokens").write_text(" \n = A title = \n")
    assert load_wikitext("valid", tmp_path, check=False).startswith(" \n")
    with pytest.raises(DataError, match="has 6 words"):
        load_wikitext("valid", tmp_path)
    with pytest.raises(ParameterError, match="Did you mean 'valid'"):
        load_wikitext("vald", tmp_path)


@real_files
def test_the_real_story_model_tells_its_story() -> None:
    language = load_language_model(Path(DATA or "") / "lm" / "llama2c")
    start = torch.tensor([language.tokenizer.encode("Once upon a time")])
    told = language.model.generate(start, max_new_tokens=40, do_sample=False, pad_token_id=2)
    # Weights in a wrong order give no English; the logits themselves are compared with a plain computation above.
    assert language.tokenizer.decode(told[0]).startswith(
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the sunshine. One day, she "
        "saw a big, red ball in the sky."
    )


@real_files
def test_the_real_vocabulary_and_texts_are_the_published_ones() -> None:
    tokenizer = load_gpt2_tokenizer(DATA)
    assert tokenizer.encode("Hello world") == [15496, 995]
    assert len(tokenizer) == 50257
    assert all(load_wikitext(part, DATA) for part in ("valid", "test"))
