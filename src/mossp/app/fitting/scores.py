"""What a fitted model is worth on some rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.metrics
from sklearn.base import is_classifier

from mossp import losses
from mossp._base.printing import short
from mossp.app.fitting.decisions import decided
from mossp.app.fitting.rows import Sample
from mossp.fairness import selection_rates
from mossp.sklearn import PartialAUCClassifier, partial_auc
from mossp.sklearn.formulation import REGRESSION, loss_of


def score(estimator: Any, given: Sample, threshold: float | None = None) -> dict[str, float]:
    """What is usually asked of such a model, on these rows."""
    metrics, y = sklearn.metrics, given.y
    if not is_classifier(estimator):
        predicted = estimator.predict(given.X, given.offset)
        found = {
            "R²": metrics.r2_score(y, predicted) if len(y) > 1 else np.nan,
            "mean absolute error": metrics.mean_absolute_error(y, predicted),
            "root mean squared error": metrics.root_mean_squared_error(y, predicted),
        }
        loss = loss_of(estimator.loss, REGRESSION)
        if isinstance(loss, losses.Quantile):
            found["pinball loss"] = metrics.mean_pinball_loss(y, predicted, alpha=float(loss.tau))
        if isinstance(loss, losses.Poisson):
            found["Poisson deviance"] = metrics.mean_poisson_deviance(y, predicted)
        if isinstance(loss, losses.Gamma):
            found["gamma deviance"] = metrics.mean_gamma_deviance(y, predicted)
        if isinstance(loss, losses.Tweedie):
            power = float(loss.power)
            found["Tweedie deviance"] = metrics.mean_tweedie_deviance(y, predicted, power=power)
        return {name: float(value) for name, value in found.items()}
    known = np.isin(y, estimator.classes_)
    if not known.all():
        raise ValueError(
            f"The test rows have the class {short(y[~known][0])}, which the training rows do not "
            "have."
        )
    predicted = decided(estimator, given, threshold)
    # Balanced accuracy, without scikit-learn's warning of classes that no row has.
    balanced = metrics.recall_score(y, predicted, labels=np.unique(y), average="macro")
    found = {"accuracy": metrics.accuracy_score(y, predicted), "balanced accuracy": balanced}
    if len(estimator.classes_) == 2:
        positive = estimator.classes_[1]
        for name, of in (("recall", "recall"), ("precision", "precision"), ("F1", "f1")):
            found[name] = getattr(metrics, f"{of}_score")(
                y == positive, predicted == positive, zero_division=0.0
            )
    if len(np.unique(y)) == len(estimator.classes_):
        areas = [metrics.roc_auc_score(t, m) for _, t, m in one_against_rest(estimator, given)]
        found["area under ROC"] = np.mean(areas)
        if len(areas) == 1:
            ((_, truth, margins),) = one_against_rest(estimator, given)
            found["average precision"] = metrics.average_precision_score(truth, margins)
    if isinstance(estimator, PartialAUCClassifier) and len(np.unique(y)) == 2:
        scores = estimator.decision_function(given.X)
        found["partial AUC"] = partial_auc(y, scores, estimator.max_fpr, estimator.min_fpr)
    if hasattr(estimator, "predict_proba"):
        probabilities = estimator.predict_proba(given.X, given.offset)
        found["log loss"] = metrics.log_loss(y, probabilities, labels=estimator.classes_)
    if given.z is not None:
        favourable = estimator.classes_[-1]
        rates = selection_rates(predicted == favourable, given.z)
        found["gap of selection rates"] = max(rates.values()) - min(rates.values())
        deserving = selection_rates(predicted == favourable, given.z, y == favourable)
        if deserving:
            found["gap of true positive rates"] = max(deserving.values()) - min(deserving.values())
    return {name: float(value) for name, value in found.items()}


def one_against_rest(estimator: Any, given: Sample) -> list[tuple[Any, np.ndarray, np.ndarray]]:
    """(class, whether a row is of it, its score): one for two classes."""
    classes, y = estimator.classes_, given.y
    if len(classes) == 2:
        return [(classes[1], y == classes[1], estimator.decision_function(given.X, given.offset))]
    # A score of one class says little without those of the others: probabilities, if there are.
    which = "predict_proba" if hasattr(estimator, "predict_proba") else "decision_function"
    scores = getattr(estimator, which)(given.X, given.offset)
    return [(c, y == c, scores[:, k]) for k, c in enumerate(classes)]
