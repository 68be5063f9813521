"""The text of a table, whatever its record is of: shown on a screen or written as Markdown."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """The text of one table: its title, header, lines of cells, and the remarks below it."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]

    def markdown(self) -> str:
        """The table as Markdown, for a README."""
        rule = ["---", *("---:" for _ in self.header[1:])]
        body = "\n".join("| " + " | ".join(line) + " |" for line in (self.header, rule, *self.lines))
        return f"**{self.title}**\n\n{body}\n\n" + "\n".join(f"- {remark}" for remark in self.remarks) + "\n"
