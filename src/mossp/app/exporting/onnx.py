"""A saved model as a graph of ONNX.

Its input are the features in the units of the data, in the order of `features.names`: numbers as
they are, 1 and 0 for levels and indicators, dates in their units. How columns are encoded is not
part of the graph; the object for JSON and the query have it.
"""

from __future__ import annotations

from typing import Any

from mossp.app.exporting.terms import link_of
from mossp.app.model import Model, ModelError
from mossp.sklearn.onnx import linear_graph


def as_onnx(model: Model) -> Any:
    """The graph, with the names of the features in its metadata."""
    if model.offset is not None:
        raise ModelError("A model with an offset needs a second input: export it as SQL or JSON.")
    coef, intercept = model.raw_coefficients()
    graph = linear_graph(coef, intercept, link_of(model), model.classes, model.threshold)
    entry = graph.metadata_props.add()
    entry.key, entry.value = "features", "\n".join(model.features.names)
    return graph
