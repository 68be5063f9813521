"""Preference data in its three formats, and the numbers that are made of it."""

import gzip
import json
import os
from pathlib import Path

import pytest

from language_files import SHP_ROW, dialogue, write_hh, write_vocabulary
from softknee.errors import DataError, ParameterError
from softknee.lab.language.loading import find_pairs
from softknee.lab.language.preferences import DIFFERENT, EMPTY, UNSURE, Pair, pair_batch, read_preferences, tokenize
from softknee.lab.language.tokenizers import load_gpt2_tokenizer

DATA = os.environ.get("SOFTKNEE_DATA")


def lines(path: Path, *rows: object) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def test_dialogues_are_split_at_the_last_reply(tmp_path: Path) -> None:
    before = dialogue("Hi.", "Hello!") + "\n\nHuman: And\u2028now?\n\nAssistant:"
    path = lines(
        tmp_path / "test.jsonl.gz",
        {"chosen": before + " Yes.", "rejected": before + " No."},
        {"chosen": before + " Yes.", "rejected": before + " "},
        {"chosen": before + " Yes.", "rejected": dialogue("Hi.", "Go away!")},
        {"chosen": "no dialogue", "rejected": "no dialogue"},
    )
    result = read_preferences(path)
    assert result.pairs == (Pair(prompt=before, chosen=" Yes.", rejected=" No.", kept="end"),)
    assert result.skipped == {EMPTY: 1, DIFFERENT: 2}
    assert "2 left out" in result.sentence()


def test_questions_that_stand_alone_become_dialogues(tmp_path: Path) -> None:
    rows = [{"prompt": "Why?", "chosen": "So.", "rejected": "No."}, {"prompt": "Why?", "chosen": "", "rejected": "No."}]
    path = tmp_path / "train.json"
    path.write_text(json.dumps(rows))
    result = read_preferences(path)
    assert result.pairs == (Pair(prompt="\n\nHuman: Why?\n\nAssistant:", chosen=" So.", rejected=" No."),)
    assert result.skipped == {EMPTY: 1}


def test_shp_is_ordered_by_its_label_and_filtered_by_its_scores(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "train.json.gz",
        SHP_ROW,
        SHP_ROW | {"labels": 0, "score_A": 2, "score_B": 9},
        SHP_ROW | {"score_A": 7},  # 7/4 is less than 2
        SHP_ROW | {"score_B": 0},
        SHP_ROW | {"human_ref_B": " "},
    )
    result = read_preferences(path)
    assert [(pair.chosen, pair.rejected) for pair in result.pairs] == [
        (" With its address.", " Not at all."),
        (" Not at all.", " With its address."),
    ]
    assert result.pairs[0].prompt == "\n\nHuman: How do I cite a website?\n\nAssistant:"
    assert result.pairs[0].kept == "start"
    assert result.skipped == {UNSURE: 2, EMPTY: 1}
    assert len(read_preferences(path, least_ratio=1.5)) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"chosen": "a"', "Line 1 .* is no JSON"),
        ('[{"chosen": "a"}', r"damaged \(Expecting .* line 1 .*\)\. Take it anew"),
        ("[" * 100_000, r"damaged \(maximum recursion depth .*\)\. Take it anew"),
        ('{"chosen": ' + "9" * 5000, r"Line 1 .* is no JSON \(Exceeds the limit .*take it anew"),
        ('{"chosen": 3, "rejected": "b"}', "no text under 'chosen'"),
        ("[3]", "is a int"),
        (json.dumps({k: v for k, v in SHP_ROW.items() if k != "labels"}), "lacks 'labels'"),
        (json.dumps(SHP_ROW | {"labels": 2}), "must be 0 or 1"),
        ('{"chosen": "", "rejected": ""}', "No usable pair .* 1 with an empty reply"),
        ("", r"No usable pair was found in '.*pairs.json': it is empty. Take it anew, or name another file"),
    ],
    ids=["line", "list", "too deep", "too long", "number", "no object", "field", "label", "nothing left", "empty file"],
)
def test_what_is_no_file_of_pairs_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pairs.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_preferences(tmp_path / "pairs.json")


def test_files_are_found_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No file of HH .*huggingface\.co/datasets/Anthropic"):
        find_pairs(tmp_path)
    train = write_hh(tmp_path / "hh-rlhf" / "harmless-base" / "train.jsonl", 1)
    test = write_hh(tmp_path / "hh-rlhf" / "harmless-base_test.jsonl", 1)
    write_hh(tmp_path / "hh-rlhf" / "README", 1)
    assert find_pairs(tmp_path) == ([train], [test])
    assert find_pairs(test) == ([test], [])
    shp = write_hh(tmp_path / "SHP" / "askacademia" / "train.json", 1)
    assert find_pairs(tmp_path, sets=("hh", "shp")) == ([train, shp], [test])
    with pytest.raises(ParameterError, match="Did you mean 'shp'"):
        find_pairs(tmp_path, sets=("sph",))


def test_lengths_are_cut_as_the_authors_of_dpo_cut_them(tmp_path: Path) -> None:
    tokenizer = load_gpt2_tokenizer(write_vocabulary(tmp_path), check=False)  # a letter is its own number
    end = tokenizer.eos_token_id

    def cut(prompt: str, chosen: str, rejected: str, kept: str) -> list[str]:
        pair = Pair(prompt=prompt, chosen=chosen, rejected=rejected, kept=kept)
        result = tokenize(pair, tokenizer, length=10, prompt_length=4)
        return [
            tokenizer.decode(item).replace("<|endoftext|>", ".")
            for item in (result.prompt, result.chosen, result.rejected)
        ]

    assert cut("abcde", "xy", "z", "end") == ["abcde", "xy.", "z."]  # it fits: longer than 4 is no reason to cut
    assert cut("abcdefgh", "xy", "z", "end") == ["efgh", "xy.", "z."]
    assert cut("abcdefgh", "xy", "z", "start") == ["abcd", "xy.", "z."]
    assert cut("abcdefgh", "uvwxyz", "z", "end") == ["efgh", "uvwxyz", "z."]  # 10 - 4 tokens: without its end
    pair = tokenize(Pair(prompt="ab", chosen="x", rejected="yz"), tokenizer, length=10, prompt_length=4)
    batch = pair_batch([pair], padding=0)
    a, b, x, y, z = (ord(sign) for sign in "abxyz")
    assert batch.tokens.tolist() == [[a, b, x, end, 0], [a, b, y, z, end]]
    assert batch.real.tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert batch.targets.tolist() == [[-100, -100, x, end, -100], [-100, -100, y, z, end]]
    with pytest.raises(ParameterError, match="less than the whole length"):
        tokenize(Pair(prompt="a", chosen="b", rejected="c"), tokenizer, length=4, prompt_length=4)


@pytest.mark.skipif(not DATA, reason="SOFTKNEE_DATA names no data folder")
def test_the_real_files_of_hh() -> None:
    train, test = find_pairs(DATA)
    assert read_preferences(test).skipped == {DIFFERENT: 4, EMPTY: 4}
    assert len(read_preferences(test)) == 2304
    reduced = read_preferences(train)
    assert (len(reduced), reduced.skipped) == (4999, {EMPTY: 1})
