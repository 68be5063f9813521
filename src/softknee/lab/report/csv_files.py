"""The numbers as CSV: one row for each activation and measure, and one for each activation, measure and seed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from ..studies.outcome import Each, Outcome
from .beside_tables import COLUMNS, beside_lines
from .parts import Measure, Row, Summary

RESULTS = (
    *("activation", "name", "values", "measure", "value", "low", "high", "stdev", "seeds", "diverged"),
    *("baseline", "difference", "difference_low", "difference_high", "p", "p_holm", "p_sign_flips", "effect_g"),
    *("margin", "p_equivalence_holm", "verdict", "best", "record"),
)
SEEDS = ("activation", "seed", "measure", "value", "diverged_in_epoch", "record")


def results_csv(summary: Summary) -> str:
    """Averages with intervals, tests and verdicts; unscaled, with all digits, and empty where there is none."""
    lines = [_result(summary, row, measure) for row in summary.rows for measure in summary.measures]
    lines += [_head(row) | {"measure": "parameters", "value": row.trained} for row in summary.rows if row.trained]
    lines += [line for row in summary.rows for line in _costs(row)]
    return _written(RESULTS, lines)


def _result(summary: Summary, row: Row, measure: Measure) -> Mapping[str, object]:
    found, verdict = row.found(measure), row.verdicts.get(measure.name)
    line: dict[str, object] = _head(row) | {"measure": measure.name, "best": measure.name in row.best}
    if found is not None:
        low, high = found.interval or (None, None)
        line |= {"value": found.value, "low": low, "high": high, "stdev": found.stdev}
    if verdict is not None and summary.baseline is not None:
        one = verdict.comparison
        low, high = one.interval or (None, None)
        line |= {
            "baseline": summary.baseline.label,
            "difference": one.difference,
            "difference_low": low,
            "difference_high": high,
            "p": one.p,
            "p_holm": verdict.adjusted,
            "p_sign_flips": one.p_flips,
            "effect_g": one.effect,
            "margin": one.margin,
            "p_equivalence_holm": verdict.equivalence,
            "verdict": verdict.words,
        }
    return line


def _head(row: Row) -> dict[str, object]:
    return {
        "activation": row.label,
        "name": row.name,
        "values": " ".join(f"{name}={value}" for name, value in row.values.items()),
        "seeds": len(row.seeds),
        "diverged": len(row.diverged),
        "record": row.key,
    }


def _costs(row: Row) -> list[Mapping[str, object]]:
    """Times: median and quartiles."""
    if row.cost is None:
        return []
    named = {
        "train_time": row.cost.train,
        "infer_time": row.cost.infer,
        "train_ratio": row.cost.train_ratio,
        "infer_ratio": row.cost.infer_ratio,
    }
    head = _head(row) | {"record": row.cost.key, "seeds": None, "diverged": None}
    return [
        head | {"measure": name, "value": one.value, "low": one.low, "high": one.high} for name, one in named.items()
    ]


def paper_csv(summary: Summary) -> str:
    """The numbers of the paper beside ours, in the unit that the paper has; the averages are what `average` says."""
    return _written(COLUMNS, beside_lines(summary))


def seeds_csv(outcomes: Sequence[Outcome]) -> str:
    """Every number that a seed has for itself, and prediction differences without that seed."""
    return _written(SEEDS, [line for outcome in outcomes if outcome.trial.kind == "train" for line in _seeds(outcome)])


def _seeds(outcome: Outcome) -> Iterable[Mapping[str, object]]:
    measures: dict[str, Each] = {}
    for part, found in (("test", outcome.test), ("validation", outcome.validation), ("train", outcome.train)):
        measures |= {f"{part}.{name}": each for name, each in found.items()}
    measures |= {f"gradients.{name}": each for name, each in outcome.gradients.items()}
    measures |= {f"end.{name}": tuple(moved["end"]) for name, moved in outcome.parameters.items()}
    if outcome.replacement is not None:
        measures |= {f"replaced.{name}": tuple(each) for name, each in outcome.replacement["test"].items()}
        measures |= (
            {"replaced.changed": tuple(outcome.replacement["changed"])} if outcome.replacement.get("changed") else {}
        )
    seeds = outcome.trial.seeds.numbers
    kept = [place for place, epoch in enumerate(outcome.diverged) if epoch is None]
    for name, found in outcome.difference.items():
        if found.get("without") is not None and len(found["without"]) == len(kept):
            values = dict(zip(kept, found["without"], strict=True))
            measures[f"{name}.without_this_seed"] = tuple(values.get(place) for place in range(len(seeds)))
    for name, each in measures.items():
        for place, (seed, value) in enumerate(zip(seeds, each, strict=True)):
            yield {
                "activation": outcome.trial.activation.label,
                "seed": seed,
                "measure": name,
                "value": value,
                "diverged_in_epoch": outcome.diverged[place],
                "record": outcome.trial.key,
            }


def _written(head: Sequence[str], lines: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, head, restval="", lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: repr(value) if isinstance(value, float) else value for name, value in line.items()})
    return text.getvalue()
