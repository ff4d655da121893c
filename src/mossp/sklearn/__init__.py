"""Estimators for scikit-learn: linear models, sparse PCA and CCA, under constraints.

- `MoSSPClassifier`: logistic, softmax or huberised hinge loss.
- `MoSSPRegressor`: squared, Huber, quantile, Poisson, gamma or Tweedie loss.
- `PUClassifier`: from positive and unlabelled rows.
- `PartialAUCClassifier`: linear scores for the first part of the ROC curve; `partial_auc`.
- `PathCV`: either of them, its strength chosen along a path of solutions, one a fold.
- `SparsePCA`: sparse loadings on the sphere, or orthonormal.
- `SparseCCA`: sparse, perhaps nonnegative, canonical loadings.
- `to_onnx`: a fitted linear model as an ONNX graph.
"""

from typing import TYPE_CHECKING

from mossp._base import later

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise ImportError("mossp.sklearn needs scikit-learn: pip install 'mossp[sklearn]'.") from None

if TYPE_CHECKING:
    from mossp.sklearn.cca import SparseCCA
    from mossp.sklearn.models import MoSSPClassifier, MoSSPRegressor
    from mossp.sklearn.onnx import to_onnx
    from mossp.sklearn.partial import PartialAUCClassifier, partial_auc
    from mossp.sklearn.pca import SparsePCA
    from mossp.sklearn.positive import PUClassifier
    from mossp.sklearn.search import PathCV
else:
    __getattr__, __dir__ = later.attributes(
        __name__,
        names={
            "mossp.sklearn.cca": "SparseCCA",
            "mossp.sklearn.models": "MoSSPClassifier MoSSPRegressor",
            "mossp.sklearn.onnx": "to_onnx",
            "mossp.sklearn.partial": "PartialAUCClassifier partial_auc",
            "mossp.sklearn.pca": "SparsePCA",
            "mossp.sklearn.positive": "PUClassifier",
            "mossp.sklearn.search": "PathCV",
        },
    )

__all__ = [
    "MoSSPClassifier",
    "MoSSPRegressor",
    "PUClassifier",
    "PartialAUCClassifier",
    "PathCV",
    "SparseCCA",
    "SparsePCA",
    "partial_auc",
    "to_onnx",
]
