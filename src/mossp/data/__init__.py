"""Where samples come from: Finite (arrays, sparse rows), Sampler, Stream, or none; files.

`protocol` says what all of them can do, and is all that the rest of the library knows of them.
"""

from mossp.data.finite import Finite, is_rows, map_rows
from mossp.data.joint import VALUES, Joint, Rows, joined
from mossp.data.libsvm import DataError, read_libsvm
from mossp.data.on_disk import OnDisk
from mossp.data.protocol import PROBED_SIZES, Compiled, Source, count_draws, filled, stack
from mossp.data.sets import DataSet, load_data
from mossp.data.sharded import Sharded, divided_over
from mossp.data.sources import Arriving, NoData, Sampler, Stream
from mossp.data.sparse import SparseRows, is_sparse, padded_length
from mossp.data.validation import as_source, checked_rows

__all__ = [
    "PROBED_SIZES",
    "VALUES",
    "Arriving",
    "Compiled",
    "DataError",
    "DataSet",
    "Finite",
    "Joint",
    "NoData",
    "OnDisk",
    "Rows",
    "Sampler",
    "Sharded",
    "Source",
    "SparseRows",
    "Stream",
    "as_source",
    "checked_rows",
    "count_draws",
    "divided_over",
    "filled",
    "is_rows",
    "is_sparse",
    "joined",
    "load_data",
    "map_rows",
    "padded_length",
    "read_libsvm",
    "stack",
]
