"""The report of a study: one page, and the same as Markdown, CSV and LaTeX.

outcomes -> summary (what is shown) -> tables, figures -> html, markdown, latex, csv_files, pdf
"""

from .summary import Summary, summarise
from .writing import report_files, write_report

__all__ = ["Summary", "report_files", "summarise", "write_report"]
