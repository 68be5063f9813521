"""Fixtures that several files share."""

from click_records import rows as rows
from paper_records import digits as digits
