"""The guide to surgery: its blocks run, one after the other, as they stand."""

import linecache
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "surgery.md"


def test_the_blocks_of_the_guide_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 4
    code = "\n".join(blocks)
    file = "<surgery.md>"
    # As a notebook does it: surgery reads the source of what it changes.
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    names: dict[str, object] = {"__name__": "guide"}
    exec(compile(code, file, "exec"), names)
    shown = capsys.readouterr().out
    assert "gelu gelu_tanh functional" in shown
    assert "3 changed, 0 left" in shown
    assert "3 activations replaced" in shown
    before, after = (float(re.findall(rf"metric {word}: (\S+)", shown)[-1]) for word in ("before", "after"))
    assert after == pytest.approx(before, rel=0.05)
