"""Tables of the records of GPT-2s trained from scratch, by commands that recipes have replaced.

`softknee study language` has become the recipe `language`, `softknee study wikitext` the recipes `wikitext-small` and
`wikitext-124m` of this paper, and with a model the recipe `perplexity`.
"""

from __future__ import annotations

from collections.abc import Sequence

from softknee.lab.table import DENSE, Table
from softknee.measure.record import Record

LANGUAGE = "study language"  # the kind of a record of characters; of tokens it is "study wikitext"
COLUMNS = ("free", "bare", "hardened", "replaced", "together", "layerwise", "went on")
_OF_A_MODEL = {
    "perplexity": "perplexity",
    "word_perplexity": "per word",
    "with_relu_perplexity": "with ReLU",
    "with_relu_word_perplexity": "with ReLU per word",
}


def language_markdown(record: Record) -> str:
    """The table of such a record: losses in nats of a character, or perplexities of a token."""
    if record.kind == LANGUAGE:
        return _trained(record, "validation loss, nats", "loss", 4)
    if "loss_by_seed" in record.rows[0]:
        return _trained(record, "perplexity", "perplexity", 2)
    rows = [
        [row["activation"], *(f"{row[name]:.2f}" if name in row else "–" for name in _OF_A_MODEL)]
        for row in record.rows
    ]
    return _markdown(["activation", *_OF_A_MODEL.values()], rows)


def _trained(record: Record, title: str, measure: str, places: int) -> str:
    columns = [name for name in COLUMNS if any(name in row["loss"] for row in record.rows)]
    rows = [
        [row["row"], *(row[measure][name].text(places) if name in row[measure] else "–" for name in columns)]
        for row in record.rows
    ]
    return _markdown([title, *columns], rows)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return Table(head=head, rows=rows, align="l" + "r" * (len(head) - 1), markup=True).markdown(DENSE)
