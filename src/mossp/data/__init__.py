"""Where samples come from: Finite (arrays, sparse rows), Sampler, Stream, or none; files."""

from mossp.data.finite import Finite, is_rows, map_rows
from mossp.data.libsvm import DataError, read_libsvm
from mossp.data.sets import DataSet, load_data
from mossp.data.sources import Arriving, NoData, Sampler, Stream
from mossp.data.sparse import SparseRows, is_sparse, padded_length

__all__ = [
    "Arriving",
    "DataError",
    "DataSet",
    "Finite",
    "NoData",
    "Sampler",
    "SparseRows",
    "Stream",
    "is_rows",
    "is_sparse",
    "load_data",
    "map_rows",
    "padded_length",
    "read_libsvm",
]
