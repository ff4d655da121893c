"""Linear models as graphs of ONNX, with the names that skl2onnx gives: X, label, probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from mossp import losses
from mossp.sklearn.formulation import CLASSIFICATION, REGRESSION, loss_of

OPSET, IR = 15, 8  # which runtimes of the last years know


def to_onnx(model: Any) -> Any:
    """A fitted classifier or regressor as an ONNX model.

    Parameters
    ----------
    model : MoSSPClassifier or MoSSPRegressor
        Fitted without an offset.

    Returns
    -------
    onnx.ModelProto
        Input "X", rows of float64. Outputs "label" and "probabilities" (or "scores", where the loss
        has no probabilities) for a classifier, "variable" for a regressor.
    """
    check_is_fitted(model, "coef_")
    if getattr(model, "with_offset_", False):
        raise ValueError("A model with an offset needs a second input, which ONNX is not given.")
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    if not is_classifier(model):
        loss = loss_of(model.loss, REGRESSION)
        logarithmic = isinstance(loss, (losses.Poisson, losses.Gamma, losses.Tweedie))
        return linear_graph(coef, intercept, "log" if logarithmic else "identity")
    loss = loss_of(model.loss, CLASSIFICATION, model.classes_)
    likely = isinstance(loss, (losses.Logistic, losses.Softmax))
    link = "none" if not likely else "logit" if len(coef) == 1 else "softmax"
    return linear_graph(coef, intercept, link, model.classes_)


def linear_graph(
    coef: np.ndarray, intercept: np.ndarray, link: str, classes: Any = None,
    threshold: float | None = None,
) -> Any:  # fmt: skip
    """The graph of X coef' + intercept and of what the link makes of it.

    Parameters
    ----------
    link : {"identity", "log", "logit", "softmax", "none"}
        What becomes of scores; "none" are classes without probabilities.
    classes : array, optional
        Numbers, booleans or text.
    threshold : float, optional
        Of two classes: the probability (or score) above which a row is of the second.
    """
    helper, numpy_helper, kinds = _onnx()
    constants = {"coef": coef.T.astype(float), "intercept": intercept.astype(float)}
    nodes = [
        helper.make_node("MatMul", ["X", "coef"], ["product"]),
        helper.make_node("Add", ["product", "intercept"], ["raw"]),
    ]
    rows = lambda width: [None, width]  # noqa: E731
    shape = rows(len(coef))
    if classes is None:
        last = "Exp" if link == "log" else "Identity"
        nodes.append(helper.make_node(last, ["raw"], ["variable"]))
        outputs = [helper.make_tensor_value_info("variable", kinds.DOUBLE, shape)]
    else:
        outputs = _classified(helper, kinds, nodes, constants, len(coef), link, classes, threshold)
    graph = helper.make_graph(
        nodes, "mossp", [helper.make_tensor_value_info("X", kinds.DOUBLE, rows(coef.shape[1]))],
        outputs, [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)],
                             producer_name="mossp")  # fmt: skip
    made.ir_version = IR
    return made


def _classified(
    helper: Any, kinds: Any, nodes: list[Any], constants: dict[str, np.ndarray], count: int,
    link: str, classes: Any, threshold: float | None,
) -> list[Any]:  # fmt: skip
    """The nodes from scores to labels and probabilities; the outputs."""
    values = np.asarray(classes)
    text = values.dtype.kind in "UO"
    constants["classes"] = values.astype(object) if text else values.astype(np.int64)
    if values.dtype.kind == "f" and (values != np.round(values)).any():
        constants["classes"] = values.astype(float)
    second, width = "probabilities" if link != "none" else "scores", max(count, 2)
    if count == 1:
        cut = threshold if threshold is not None else (0.5 if link == "logit" else 0.0)
        constants["threshold"] = np.array(cut, float)
        if link == "logit":
            nodes += [
                helper.make_node("Sigmoid", ["raw"], ["positive"]),
                helper.make_node("Neg", ["raw"], ["minus"]),
                helper.make_node("Sigmoid", ["minus"], ["negative"]),
                helper.make_node("Concat", ["negative", "positive"], [second], axis=1),
            ]
        else:
            nodes.append(helper.make_node("Identity", ["raw"], ["positive"]))
            nodes.append(helper.make_node("Identity", ["raw"], [second]))
            width = 1
        constants["axes"] = np.array([1], np.int64)
        nodes += [
            helper.make_node("Greater", ["positive", "threshold"], ["above"]),
            helper.make_node("Cast", ["above"], ["wide"], to=kinds.INT64),
            helper.make_node("Squeeze", ["wide", "axes"], ["number"]),
        ]
    else:
        last = "Softmax" if link == "softmax" else "Identity"
        nodes.append(
            helper.make_node(last, ["raw"], [second], **({"axis": 1} if link == "softmax" else {}))
        )
        nodes.append(helper.make_node("ArgMax", ["raw"], ["number"], axis=1, keepdims=0))
    nodes.append(helper.make_node("Gather", ["classes", "number"], ["label"]))
    kind = (
        kinds.STRING
        if text
        else kinds.DOUBLE
        if constants["classes"].dtype == float
        else kinds.INT64
    )
    return [
        helper.make_tensor_value_info("label", kind, [None]),
        helper.make_tensor_value_info(second, kinds.DOUBLE, [None, width]),
    ]


def _onnx() -> Any:
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ImportError("ONNX models need onnx: pip install 'mossp[onnx]'") from None
    return helper, numpy_helper, TensorProto
