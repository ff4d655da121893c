"""Where samples come from: Finite (arrays, sparse rows), Sampler, Stream, or none."""

from mossp.data.finite import Finite, is_rows, map_rows, padded_length
from mossp.data.sources import Arriving, NoData, Sampler, Stream
from mossp.data.sparse import SparseRows

__all__ = [
    "Arriving",
    "Finite",
    "NoData",
    "Sampler",
    "SparseRows",
    "Stream",
    "is_rows",
    "map_rows",
    "padded_length",
]
