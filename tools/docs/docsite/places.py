"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAPERS = ROOT / "papers"
RECORDS = ROOT / "benchmarks" / "records"
SOURCE = ROOT / "src" / "softknee"
TOOLS = ROOT / "tools" / "docs"
