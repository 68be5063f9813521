"""Tries softknee's surgery on several hundred real models in small configurations, and says where it goes wrong.

    python tools/survey_models.py --jobs 2 --out survey.jsonl                # every family; run again to resume
    python tools/survey_models.py --family transformers --only 'mamba*'      # a few

Each model runs in a process of its own. What executes is counted by `survey_observe`, which does not use the surgery;
`sk.sites`, `sk.swap_` and `report.undo()` are compared with that count. The exit code is 1 if anything is silently
wrong or unlisted.

The rules of the comparison:
- An activation is *listed* if the report has an entry for the module that computes it, or an entry at the module whose
  method calls it that names its function; one such entry covers one line of code.
- A spelled-out activation (`x * sigmoid(x)`) of which only a part is listed counts as unlisted; if a part is changed,
  the swap is silently wrong. Squared ReLU is the exception: its ReLU is an activation in its own right.
- Sigmoid, tanh, hard sigmoid, softsign, hardtanh and the inside of recurrent layers are gates: swap_ leaves them unless
  they are named. Unlisted ones stand in a column of their own and do not count as unlisted.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import multiprocessing
import os
import re
import sys
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from survey_builders import build, call, enliven, names
from survey_observe import Event, Recorder
from torch import Tensor, nn

import softknee as sk

FAMILIES = ("nets", "torchvision", "timm", "transformers")
NEW, VALUES = "srelu", {"delta": 0.5}
BLOWN_UP = 1e3


@dataclass
class Run:
    """What one forward pass showed."""

    output: list[Tensor]
    events: list[Event] = field(default_factory=list)
    called: set[int] = field(default_factory=set)

    @property
    def units(self) -> list[Event]:
        return [event for event in self.events if event.inside is None]

    @property
    def largest(self) -> float:
        return max((tensor.abs().max().item() for tensor in self.output if tensor.numel()), default=0.0)

    def same(self, other: Run) -> bool:
        shapes = [tensor.shape for tensor in self.output] == [tensor.shape for tensor in other.output]
        return shapes and all(
            torch.equal(mine.nan_to_num(), theirs.nan_to_num())
            for mine, theirs in zip(self.output, other.output, strict=True)
        )


@dataclass
class Entry:
    """A line of a report: a site that was changed or left."""

    path: str
    function: str
    changed: bool
    reason: str = ""

    @property
    def owner(self) -> str:
        return self.path.rpartition(".")[0]


class Subject:
    """A model under examination, with the names that its modules had at the start."""

    def __init__(self, model: nn.Module, example: Any) -> None:
        self.model, self.example = model, example
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.paths = {id(module): path for path, module in reversed(self.modules.items())}
        self.classes = {path: type(module) for path, module in self.modules.items()}
        self.keys = list(model.state_dict())

    def run(self, *, record: bool = True) -> Run:
        paths = {id(module): path for path, module in self.model.named_modules()} | self.paths
        called: set[int] = set()
        note = nn.modules.module.register_module_forward_pre_hook(lambda module, _: called.add(id(module)))
        torch.manual_seed(1)
        try:
            with torch.no_grad():
                if not record:
                    return Run(_tensors(call(self.model, _copied(self.example))), [], called)
                with Recorder(paths) as recorder:
                    output = call(self.model, _copied(self.example))
            return Run(_tensors(output), recorder.events, called)
        finally:
            note.remove()

    def canonical(self, path: str) -> str | None:
        """The first path of the module that a path leads to, None where no module is there."""
        return self.paths[id(self.modules[path])] if path in self.modules else None

    def explains(self, entry: Entry, event: Event) -> bool:
        if (module := self.canonical(entry.path)) is not None:
            return module in event.owners
        return self.canonical(entry.owner) == event.owner and _alike(entry.function, event.function)


def examine(family: str, name: str, *, without_example: bool = False) -> dict[str, Any]:
    """All that is known of one model, with the verdict."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        return _examine(family, name, without_example=without_example)


def _examine(family: str, name: str, *, without_example: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"family": family, "name": name, "built": False, "wrong": [], "unlisted": [], "notes": []}
    started = time.monotonic()
    try:
        model, example = build(family, name)
        subject = Subject(model, example)
        for gain in (1.3, 0.5):
            with torch.no_grad():
                enliven(model, gain=gain)
            if all(bool(tensor.isfinite().all()) for tensor in subject.run(record=False).output):
                break
    except Exception as error:
        record["verdict"] = f"could not be built: {type(error).__name__}: {str(error)[:300]}"
        return record
    record |= {"built": True, "title": getattr(model, "title", type(model).__name__)}
    record["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    try:
        _survey(subject, record, family)
        if without_example:
            _survey_blind(subject, record)
    except Exception as error:
        record["wrong"].append(
            {"what": "the survey met an error", "text": repr(error), "trace": traceback.format_exc()}
        )
    record["seconds"] = round(time.monotonic() - started, 1)
    record["verdict"] = _verdict(record)
    return record


def _survey(subject: Subject, record: dict[str, Any], family: str) -> None:
    model = subject.model
    plain, before = subject.run(record=False), subject.run()
    repeats = plain.same(subject.run(record=False))
    record["executed"] = _counted(before.units)
    record["spelled_out"] = [_shown(event) for event in _distinct(before.units) if event.operator.startswith("spelled")]
    sites = sk.sites(model, subject.example)
    record["sites"] = [
        {"path": site.path, "function": site.function, "kind": site.kind, "trouble": site.trouble} for site in sites
    ]
    changed_before = not subject.run(record=False).same(plain)
    if repeats and changed_before:
        record["wrong"].append({"what": "sites() changed the output"})
    try:
        report = sk.swap_(model, NEW, example=subject.example, **VALUES)
    except sk.InputError as error:
        record["refused"] = str(error)
        entries = [Entry(site.path, site.function, False, site.trouble or "left") for site in sites]
        _match(subject, record, entries, before, None)
        if repeats and not subject.run(record=False).same(plain):
            record["wrong"].append({"what": "a refused swap changed the output"})
        return
    entries = _entries(report)
    record |= {"changed": len(report.changed), "left": len(report.skipped), "report_notes": report.notes}
    record["left_entries"] = [[entry.path, entry.function, entry.reason] for entry in entries if not entry.changed]
    after = subject.run()
    _match(subject, record, entries, before, after)
    _judge_output(record, before, after)
    if family == "nets":
        _judge_reference(subject, record, report, after)
    report.undo()
    restored = subject.run(record=False)
    if repeats and not restored.same(plain):
        record["wrong"].append({"what": "undo() does not restore the output"})
    if list(model.state_dict()) != subject.keys:
        record["wrong"].append({"what": "undo() does not restore the keys of the state dict"})
    if {path: type(module) for path, module in model.named_modules(remove_duplicate=False)} != subject.classes:
        record["wrong"].append({"what": "undo() does not restore the modules"})
    if not repeats:
        record["notes"].append("two runs differ by themselves, so the output after undo() is not compared")


def _entries(report: Any) -> list[Entry]:
    changed = [Entry(path, site.was, True) for site in report.changed for path in (site.path, *site.also)]
    return changed + [Entry(site.path, site.activation, False, site.reason) for site in report.skipped]


def _match(subject: Subject, record: dict[str, Any], entries: list[Entry], before: Run, after: Run | None) -> None:
    """Compare the entries of a report with what executed before and after."""
    remaining = {event.key for event in after.events} if after is not None else set()
    modules = dict(subject.model.named_modules(remove_duplicate=False))
    there = set(modules.values())
    covered: dict[int, list[Entry]] = defaultdict(list)
    by_line: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in _distinct(before.units):
        for entry in entries:
            if subject.canonical(entry.path) is not None and subject.explains(entry, event):
                covered[id(event)].append(entry)
        if not covered[id(event)]:
            by_line[event.owner, _stem(event.function)].append(event)
    for events in by_line.values():  # each line needs an entry of its own
        free = [
            entry for entry in entries if subject.canonical(entry.path) is None and subject.explains(entry, events[0])
        ]
        for event in sorted(events, key=lambda event: event.key in remaining):
            wanted = [
                entry for entry in free if entry.changed == (after is not None and event.key not in remaining)
            ] or free
            if wanted:
                covered[id(event)].append(wanted[0])
                free.remove(wanted[0])
    gates = []
    for event in _distinct(before.units):
        mine = covered[id(event)]
        parts = _parts(event, before.events)
        of_parts = [
            entry for entry in entries if entry not in mine and any(subject.explains(entry, part) for part in parts)
        ]
        inside = [entry for entry in of_parts if entry.changed and not mine]
        if inside and event.function != "relu_squared":
            what = f"the inside of {event.function} is changed: {inside[0].path} ({inside[0].function})"
            record["wrong"].append({"what": what, **_shown(event)})
        elif not mine and event.gate:
            gates.append(_shown(event))
        elif not mine and not (of_parts and event.function == "relu_squared"):
            what = f"listed only as {of_parts[0].function} at {of_parts[0].path}" if of_parts else "not listed"
            record["unlisted"].append({"what": what, **_shown(event)})
        if after is None or inside:
            continue
        gone = event.key not in remaining
        if mine and all(entry.changed for entry in mine) and not gone:
            what = f"{mine[0].path} is reported as changed, and {event.function} still runs"
            record["wrong"].append({"what": what, **_shown(event)})
        present = (subject.modules[path] for path in event.owners if subject.modules.get(path) in there)
        owner = next(present, None)
        quiet = not any(entry.changed for entry in [*mine, *of_parts])
        if gone and quiet and id(owner) in after.called:
            what = f"{event.function} does not run any more, and no entry of the report says so"
            record["wrong"].append({"what": what, **_shown(event)})
    record["gates_unlisted"] = gates
    if after is not None:
        idle = [entry for entry in entries if entry.changed and id(modules.get(entry.path)) not in after.called]
        record["changed_without_run"] = [entry.path for entry in idle if entry.path in modules]
        mentioned = " ".join(note for note in record.get("report_notes", ()) if _IDLE.search(note))
        for path in record["changed_without_run"]:
            owner = modules[path.rpartition(".")[0]]
            if id(owner) in after.called and path not in mentioned:
                what = "a module is reported as changed, and its owner runs without calling it"
                record["wrong"].append({"what": what, "site": path, "class": type(owner).__name__})


def _judge_output(record: dict[str, Any], before: Run, after: Run) -> None:
    record["moved"] = not before.same(after)
    record["ratio"] = after.largest / before.largest if before.largest else None
    if [tensor.shape for tensor in before.output] != [tensor.shape for tensor in after.output]:
        record["notes"].append("the output has another shape than before, as that of a detector may")
    # Right or not: without a trained norm, another slope at every layer adds up, and a product of two may overflow.
    if not all(bool(tensor.isfinite().all()) for tensor in before.output):
        record["notes"].append("the output is not finite before the swap, so it is not compared")
    elif not all(bool(tensor.isfinite().all()) for tensor in after.output):
        record["suspicious"] = "the output is not finite after the swap"
    elif record["ratio"] is not None and record["ratio"] > BLOWN_UP:
        record["suspicious"] = f"the output is {record['ratio']:.3g} times as large after the swap"
    warned = any("did not move" in note for note in record.get("report_notes", ()))
    if not any(tensor.numel() for tensor in before.output):
        record["notes"].append("there are no numbers in the output, so whether it moved is not known")
    elif record["changed"] and not record["moved"] and not warned:
        idle = f"{len(record['changed_without_run'])} of {record['changed']} changed modules never run"
        record["wrong"].append({"what": f"the report lists changes, and the output is the same to the bit ({idle})"})


def _judge_reference(subject: Subject, record: dict[str, Any], report: Any, after: Run) -> None:
    """A network of `survey_nets` must compute what its reference does with as many new functions as reported."""
    net: Any = subject.model
    new, claimed = sk.nn.make(NEW, **VALUES), len(_entries(report)) - len(report.skipped)
    fits = set()
    with torch.no_grad():
        for choice in itertools.product((False, True), repeat=len(net.functions)):
            functions = [new if swapped else old for swapped, old in zip(choice, net.functions, strict=True)]
            expected = net.reference(_copied(subject.example), *functions)
            if torch.allclose(expected, after.output[0], rtol=1e-4, atol=1e-5):
                fits.add(sum(choice))
    if claimed not in fits:
        what = (
            f"{claimed} reported as changed, and the output is that of {sorted(fits) or 'no number of'} new functions"
        )
        record["wrong"].append({"what": what})


def _survey_blind(subject: Subject, record: dict[str, Any]) -> None:
    """A swap without an example: which of the changed modules never run, and whether the report speaks of it."""
    blind, before = dict[str, Any](), subject.run()
    try:
        report = sk.swap_(subject.model, NEW, **VALUES)
    except sk.InputError as error:
        record["without_example"] = {"refused": str(error)}
        return
    modules = dict(subject.model.named_modules(remove_duplicate=False))
    scratch: dict[str, Any] = {"wrong": [], "unlisted": []}
    after = subject.run()
    _match(subject, scratch, _entries(report), before, after)
    idle = [site.path for site in report.changed if site.path in modules and id(modules[site.path]) not in after.called]
    text = str(report)
    blind |= {"changed": len(report.changed), "left": len(report.skipped), "never_ran": idle}
    blind["says_example"] = "example" in text
    report.undo()
    blind["unlisted"] = len(scratch["unlisted"])
    record["without_example"] = blind
    for finding in scratch["wrong"]:
        record["wrong"].append(finding | {"what": f"without an example: {finding['what']}"})
    if (idle or scratch["unlisted"]) and not blind["says_example"]:
        record["wrong"].append({"what": "without an example: the report does not say what only an example shows"})


def _verdict(record: Mapping[str, Any]) -> str:
    if record["wrong"]:
        return "SILENTLY WRONG: " + "; ".join(dict.fromkeys(_title(finding) for finding in record["wrong"]))
    if record["unlisted"]:
        return "UNLISTED: " + "; ".join(dict.fromkeys(_title(finding) for finding in record["unlisted"]))
    if "suspicious" in record:
        return f"suspicious: {record['suspicious']}"
    troubled = [site for site in record.get("sites", ()) if site["trouble"]]
    return f"left: listed with place ({len(troubled)})" if troubled else "fine"


def _title(finding: Mapping[str, Any]) -> str:
    return " ".join(str(finding[key]) for key in ("function", "place", "what") if key in finding)


def _distinct(events: Iterable[Event]) -> list[Event]:
    """One event for each line of each module."""
    return list({event.key: event for event in reversed([*events])}.values())[::-1]


def _parts(event: Event, events: list[Event]) -> list[Event]:
    """All events inside a spelled-out activation, also those inside of its parts."""
    direct = [events[index] for index in event.parts]
    return direct + [inner for part in direct for inner in _parts(part, events)]


def _shown(event: Event) -> dict[str, Any]:
    operator = event.operator if event.operator.startswith("spelled") else f"aten.{event.operator}"
    where = {"module": event.owner, "class": event.kind, "place": event.place, "method": event.method}
    return {"function": event.function, "operator": operator, **where, "code": event.text}


def _counted(events: Iterable[Event]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for event in events:
        counts[event.function] += 1
    return dict(counts)


_IDLE = re.compile(r"not called|never (called|ran|runs)|not (run|reached)|did not run", re.IGNORECASE)
_STEMS = {
    "gelutanh": "gelu",
    "quickgelu": "silu",
    "swish": "silu",
    "celu": "elu",
    "clamp": "relu",
    "clampmin": "relu",
} | {"relusquared": "relu2"}


def _stem(function: str) -> str:
    name = function.partition("(")[0].lower().replace("_", "")
    return _STEMS.get(name, name)


def _alike(listed: str, executed: str) -> bool:
    # torch's fused encoder layer says nothing of the function inside it.
    return executed == "fused_encoder_layer" or _stem(listed) == _stem(executed)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value.detach().clone()] if value.is_floating_point() else []
    if isinstance(value, Mapping):
        value = list(value.values())
    return [tensor for part in value for tensor in _tensors(part)] if isinstance(value, list | tuple) else []


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return type(value)(_copied(item) for item in value) if isinstance(value, list | tuple) else value


# Examined first and for no record: what is imported and parsed for it, every later process inherits.
_WARM_UP = {"nets": "Decoder", "torchvision": "resnet18", "timm": "vision_transformer/test", "transformers": "llama"}


# -- many models -----------------------------------------------------------------------------------------------------


def _child(pipe: Any, family: str, name: str, options: Mapping[str, Any]) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    torch.set_num_threads(1)
    pipe.send(examine(family, name, **options))


def survey(tasks: Iterable[tuple[str, str]], *, jobs: int, limit: float, **options: Any) -> Iterable[dict[str, Any]]:
    """Examine models in processes of their own, and give up on those that take too long."""
    context = multiprocessing.get_context("fork")  # the libraries are imported once
    waiting, running = list(tasks)[::-1], []
    while waiting or running:
        while waiting and len(running) < jobs:
            family, name = waiting.pop()
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(there, family, name, options))
            process.start()
            there.close()
            running.append((family, name, process, here, time.monotonic() + limit))
        multiprocessing.connection.wait([task[3] for task in running], timeout=1.0)
        for task in list(running):
            family, name, process, here, deadline = task
            result = None
            if here.poll():
                try:
                    result = here.recv()
                except EOFError:
                    process.join()
                    result = {"verdict": f"could not be built: its process ended with {process.exitcode}"}
            elif time.monotonic() > deadline:
                process.kill()
                result = {"verdict": f"could not be built: it took more than {limit:.0f} seconds"}
            if result is not None:
                process.join()
                running.remove(task)
                yield {"family": family, "name": name, "wrong": [], "unlisted": []} | result


def summary(records: Iterable[Mapping[str, Any]]) -> str:
    """Counts for each family, the names for each verdict, and every finding with the models that show it."""
    records, lines = [*records], []
    by_verdict: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    findings: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for record in records:
        by_verdict[record["verdict"].partition(":")[0]][record["family"]].append(record["name"])
        for category in ("wrong", "unlisted", "gates_unlisted"):
            for finding in record.get(category, ()):
                what = finding.get("what", "gate")
                key = (category, f"{finding.get('function', '')} {finding.get('place', '')}", finding.get("code", ""))
                findings[key if finding.get("place") else (category, what, "")].append(f"{record['name']}: {what}")
    for verdict, families in sorted(by_verdict.items()):
        lines.append(f"{verdict}: {sum(map(len, families.values()))}")
        lines += [f"  {family} ({len(names)}): {', '.join(names)}" for family, names in families.items()]
    for category in ("wrong", "unlisted", "gates_unlisted"):
        lines.append(f"\n{category}:")
        for (kind, where, code), models in sorted(findings.items()):
            if kind == category:
                lines.append(f"  {where}  `{code}`\n    {len(models)}: {'; '.join(list(dict.fromkeys(models))[:4])}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=FAMILIES, action="append", help="default: all")
    parser.add_argument("--only", action="append", help="a pattern for the names of the models; may be given often")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one model")
    parser.add_argument("--out", type=Path, help="one JSON line for each model; finished models are not run again")
    parser.add_argument("--without-example", action="store_true", help="try a swap without an example, too")
    options = parser.parse_args(arguments)
    tasks = [
        (family, name)
        for family in options.family or FAMILIES
        for name in names(family)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in options.only or ["*"])
    ]
    lines = options.out.read_text().splitlines() if options.out and options.out.exists() else []
    records = {(record["family"], record["name"]): record for record in map(json.loads, lines)}
    missing = [task for task in tasks if task not in records]
    torch.set_num_threads(1)  # a process that has started threads cannot be forked
    for family in dict.fromkeys(family for family, _ in missing):
        examine(family, _WARM_UP[family])
    blind = options.without_example
    for record in survey(missing, jobs=options.jobs, limit=options.limit, without_example=blind):
        records[record["family"], record["name"]] = record
        sys.stdout.write(f"{record['family']} {record['name']}: {record['verdict'][:200]}\n")
        sys.stdout.flush()
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
    chosen = [records[task] for task in tasks]
    sys.stdout.write(f"\n{summary(chosen)}\n")
    return int(any(record["wrong"] or record["unlisted"] for record in chosen))


if __name__ == "__main__":
    sys.exit(main())
