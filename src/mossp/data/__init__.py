"""Where samples come from: Finite (arrays, sparse rows), Sampler, Stream, or none; files.

`protocol` says what all of them can do, and is all that the rest of the library knows of them.
"""

from typing import TYPE_CHECKING

from mossp._base import later
from mossp.data.finite import Finite, is_rows, map_rows
from mossp.data.joint import VALUES, Joint, Rows, joined
from mossp.data.protocol import PROBED_SIZES, Compiled, Source, count_draws, filled, stack
from mossp.data.sources import Arriving, NoData, Sampler, Stream
from mossp.data.sparse import SparseRows, is_sparse, padded_length
from mossp.data.validation import as_source, checked_rows

# Files are read by few programs.
if TYPE_CHECKING:
    from mossp.data.libsvm import DataError, read_libsvm
    from mossp.data.on_disk import OnDisk
    from mossp.data.sets import DataSet, load_data
    from mossp.data.sharded import Sharded, divided_over
else:
    __getattr__, __dir__ = later.attributes(
        __name__,
        names={
            "mossp.data.libsvm": "DataError read_libsvm",
            "mossp.data.on_disk": "OnDisk",
            "mossp.data.sets": "DataSet load_data",
            "mossp.data.sharded": "Sharded divided_over",
        },
    )

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
