"""The output of a random network over two inputs, for any activation, norm and clipping: figures 2 and 5 to 7."""

from .drawing import check_view
from .layouts import paper_rows, read_clips, read_numbers, rows_of, split_texts
from .network import Setting, heights, network
from .roughness import Roughness, roughness
from .study import Surfaces, check_archive, check_ending, compute, write_figure, write_numbers

__all__ = [
    "Roughness",
    "Setting",
    "Surfaces",
    "check_archive",
    "check_ending",
    "check_view",
    "compute",
    "heights",
    "network",
    "paper_rows",
    "read_clips",
    "read_numbers",
    "roughness",
    "rows_of",
    "split_texts",
    "write_figure",
    "write_numbers",
]
