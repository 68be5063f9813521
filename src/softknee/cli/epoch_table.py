"""Puts the benchmark of an epoch on the terminal."""

from rich import box
from rich.table import Table

from ..measure.record import Record
from .screen import console_of


def print_epoch(record: Record) -> None:
    """One line for each way, number of models and augmentation: a step, a whole training, the start, the ratio."""
    console = console_of()
    settings = record.settings
    where = record.hardware.gpu if settings["device"] == "cuda" else f"CPU, {settings['threads']} threads"
    swap = f", {settings['swap']}" if settings["swap"] else ""
    side = settings["image"]
    console.print(f"{settings['model']}{swap}, on {where or settings['device']}", markup=False)
    title = (
        f"{settings['examples']:,} images of {side} x {side}, batch {settings['batch']}, {settings['precision']}, "
        f"{settings['steps_of_an_epoch']} steps an epoch"
    )
    drawn = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    drawn.add_column("way")
    drawn.add_column("models", justify="right")
    drawn.add_column("augmentation")
    for name in ("step of all, ms", f"{settings['epochs']} epochs, s", "start, s", "ratio"):
        drawn.add_column(name, justify="right")
    for row in record.rows:
        head = (row["way"], str(row["count"]), row["augmentation"])
        if "not_run" in row:
            drawn.add_row(*head, "not run", "", "", "")
        else:
            ratio = f"{row['ratio']:.2f}x" if "ratio" in row else ""
            drawn.add_row(*head, row["step"].text(2), row["run"].text(0), f"{row['start']:.1f}", ratio)
    console.print(drawn)
    for row in record.rows:
        if "not_run" in row:
            what = f"{row['way']}, {row['count']} models, {row['augmentation']}"
            console.print(f"{what}: {row['not_run']}", style="red", markup=False)
    if settings["steps_timed"] < settings["steps_of_an_epoch"]:
        console.print(
            f"The epochs are extrapolated from {settings['steps_timed']} of {settings['steps_of_an_epoch']} steps.",
            markup=False,
        )
    if record.baseline is not None:
        how = "with autocast in bfloat16" if settings["precision"] == "bfloat16" else "in float32"
        console.print(
            f"The plain loop trains one model, eagerly, {how}: AdamW, clipped gradients, crop and flip on the device; "
            "the ratio is how much longer as many models take one after the other in that loop.",
            style="dim",
            markup=False,
        )
