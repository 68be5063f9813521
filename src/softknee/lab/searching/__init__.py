"""A search for activations: candidates from a grammar, each proved before it is trained, and judged with fresh seeds.

grammar.py  from the choices of a sampler to a candidate
proving.py  the promises of a candidate
workers.py  proofs and trainings in other processes, many candidates at once
search.py   generations, the sampler and the judgement
page.py     what came of it
"""

from .page import headline, judged_table, luck_table, overview_table, write_page
from .search import SearchResult, holds_search, read_engine, read_search, search

__all__ = [
    "SearchResult",
    "headline",
    "holds_search",
    "judged_table",
    "luck_table",
    "overview_table",
    "read_engine",
    "read_search",
    "search",
    "write_page",
]
