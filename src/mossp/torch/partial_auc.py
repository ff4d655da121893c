"""A loss of scores for a part of the ROC curve: false positive rates in [min_fpr, max_fpr].

Let m_i be the scores of the positives of a batch, n_j those of its N negatives, and

    G_j = mean_i (1 - m_i + n_j)_+^2        how far negative j is above the positives

G_j grows with n_j, so that the share s of negatives with the highest scores has the largest G_j,

    T_s(G) = max over 0 <= q_j <= 1/N, sum_j q_j = s of q'G

and the mean over the negatives at rates in [a, b] is a difference of convex functions of scores,

    T_b(G) / (b - a)  -  T_a(G) / (b - a)

It is that of `mossp.sklearn.PartialAUCClassifier(surrogate="range")`, which smooths T_s, as
delta > 0 does here, by

    min_t  s t + mean_j delta log(1 + exp((G_j - t) / delta))
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from mossp._base.printing import shown
from mossp.smoothing import HALVINGS
from mossp.torch.vectors import Tensor


class PartialAUC(NamedTuple):
    """The two parts of a partial AUC loss, both convex functions of the scores.

    Attributes
    ----------
    loss : tensor
        T_b / (b - a), for the closure of a step.
    concave : tensor
        T_a / (b - a), which is subtracted: for `MoSSP(..., concave=...)`; 0 for min_fpr = 0.

    Examples
    --------
    >>> import torch
    >>> from mossp.torch import partial_auc_parts
    >>> scores, labels = torch.tensor([2.0, 0.0, 0.5, 1.5]), torch.tensor([1, 0, 0, 0])
    >>> partial_auc_parts(scores, labels, max_fpr=0.5, min_fpr=0.25)
    PartialAUC(loss=tensor(0.3333), concave=tensor(0.2500))
    """

    loss: Any
    concave: Any


def partial_auc_parts(
    scores: Any, labels: Any, max_fpr: float = 0.1, min_fpr: float = 0.0, *, delta: float = 0.0
) -> PartialAUC:
    """The loss of `partial_auc_loss` as a difference of two convex functions of the scores.

    Parameters
    ----------
    scores, labels, max_fpr, min_fpr, delta
        As for `partial_auc_loss`.

    Returns
    -------
    PartialAUC
        With `loss` and `concave`, of which the former minus the latter is `partial_auc_loss`.

    Examples
    --------
    >>> import torch
    >>> from mossp.torch import MoSSP, partial_auc_parts
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(400, 5)
    >>> y = X[:, 0] + X[:, 1] ** 2 + 0.5 * torch.randn(400) > 2
    >>> model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> def parts():
    ...     return partial_auc_parts(model(X), y, max_fpr=0.3, min_fpr=0.1)
    >>> optimizer = MoSSP(model.parameters(), concave=lambda: parts().concave, lr=0.1)
    >>> for _ in range(200):
    ...     _ = optimizer.step(lambda: parts().loss.backward())
    >>> found = parts()
    >>> bool(0 < found.loss - found.concave < 0.3)
    True
    """
    low, high, delta = checked_range(min_fpr, max_fpr, delta)
    m, n = by_class(scores, labels)
    G = above(m, n)
    length = high - low
    loss = top(G, high, delta) / length
    concave = top(G, low, delta) / length if low else torch.zeros_like(loss)
    connected = 0.0 * scores.sum()  # so that NaN is seen, and there is always a gradient
    return PartialAUC(loss.to(scores.dtype) + connected, concave.to(scores.dtype) + connected)


def partial_auc_loss(
    scores: Any, labels: Any, max_fpr: float = 0.1, min_fpr: float = 0.0, *, delta: float = 0.0
) -> Any:
    """A loss for the one-way partial AUC: a squared hinge over pairs with the hardest negatives.

    Parameters
    ----------
    scores : tensor
        Of the rows of a batch, high for positives: (n,) or (n, 1).
    labels : tensor
        As many; positives are those above 0.
    max_fpr, min_fpr : float
        The range of false positive rates, 0 <= min_fpr < max_fpr <= 1.
    delta : float
        Smooths which negatives count, in units of the squared hinge; 0 for not at all.
        `mossp.sklearn.PartialAUCClassifier` has 0.05.

    Returns
    -------
    tensor
        The mean of (1 - m_i + n_j)_+^2 over the positives i and those negatives j of the batch
        whose rank by score, as a share of the negatives, is within the range.

    Notes
    -----
    It costs a sort of the scores. The negatives are ranked within the batch, the share of one
    between two ranks being divided: with few negatives in a batch it is too small on average, by
    the order of one over their number. Draw batches class by class if one of them is rare; a batch
    without positives or without negatives is refused.

    With min_fpr = 0 it is a convex function of the scores. Otherwise it is a difference of two,
    which `partial_auc_parts` gives apart.

    Examples
    --------
    >>> import torch
    >>> from mossp.torch import partial_auc_loss
    >>> scores, labels = torch.tensor([2.0, 0.0, 0.5, 1.5]), torch.tensor([1, 0, 0, 0])
    >>> partial_auc_loss(scores, labels, max_fpr=1 / 3).item()  # (1 - 2 + 1.5)^2
    0.25
    >>> partial_auc_loss(scores, labels, max_fpr=1.0).item()
    0.08333333
    """
    parts = partial_auc_parts(scores, labels, max_fpr, min_fpr, delta=delta)
    return parts.loss - parts.concave


# What is checked ------------------------------------------------------------------------------


def checked_range(low: Any, high: Any, delta: Any) -> tuple[float, float, float]:
    for name, given in (("min_fpr", low), ("max_fpr", high), ("delta", delta)):
        if isinstance(given, bool) or not isinstance(given, (int, float)):
            raise TypeError(f"{name} must be a number, but {shown(given)} was given.")
    if not 0 <= low < high <= 1:
        raise ValueError(
            "The range of false positive rates needs 0 <= min_fpr < max_fpr <= 1, but "
            f"min_fpr = {low:g} and max_fpr = {high:g} were given."
        )
    if not 0 <= delta < float("inf"):
        raise ValueError(f"delta must be a number >= 0, but {delta:g} was given.")
    return float(low), float(high), float(delta)


def by_class(scores: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """The scores of positives and of negatives, in double precision where the device has it."""
    for name, given in (("scores", scores), ("labels", labels)):
        if not isinstance(given, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, but {shown(given)} was given.")
        if given.ndim not in (1, 2) or (given.ndim == 2 and given.shape[1] != 1):
            raise ValueError(
                f"{name} must be of the shape (n,) or (n, 1), one for a row, but they are of "
                f"{tuple(given.shape)}."
            )
    if len(scores) != len(labels):
        raise ValueError(f"There are {len(scores)} scores, but {len(labels)} labels.")
    flat, positive = scores.reshape(-1), labels.reshape(-1) > 0
    count = int(positive.sum())
    if not 0 < count < len(flat):
        raise ValueError(
            "A partial AUC needs positives and negatives in every batch, but this one has "
            f"{count} positives (labels above 0) among {len(flat)} rows: draw batches class by "
            "class, or make them larger."
        )
    flat = flat.to(torch.float32 if flat.device.type == "mps" else torch.float64)
    flat = flat - flat.detach().mean()  # a common shift changes nothing but the rounding
    return flat[positive], flat[~positive]


# The loss -------------------------------------------------------------------------------------


def above(m: Tensor, n: Tensor) -> Tensor:
    """G: for each negative the mean of (1 - m_i + n_j)_+^2 over the positives.

    Examples
    --------
    >>> above(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0])).tolist()
    [0.0, 0.5]
    """
    m = m.sort().values
    # Sums over the positives below each place, from which the square is put together.
    sums = [torch.cat([m.new_zeros(1), (m**power).cumsum(0)]) for power in (1, 2)]
    t = 1 + n
    below = torch.searchsorted(m.detach(), t.detach())
    first, second = (each[below] for each in sums)
    return ((t * t * below - 2 * t * first + second) / len(m)).clamp(min=0.0)


def top(G: Tensor, share: float, delta: float) -> Tensor:
    """T_s(G), smoothed where delta > 0."""
    N = len(G)
    if not delta:
        q = (share * N - torch.arange(N).to(G)).clamp(0.0, 1.0) / N
        return q @ G.sort(descending=True).values
    share = min(share, 1 - max(1e-9, 4 * torch.finfo(G.dtype).eps))  # 1: nothing to choose from
    t = level(G.detach(), share, delta)  # where the derivative by t is 0: t may stay as it is
    return share * t + delta * torch.nn.functional.softplus((G - t) / delta, threshold=50).mean()


def level(G: Tensor, share: float, delta: float) -> Tensor:
    """The t at which the sigmoids of (G_j - t) / delta have the mean `share`."""
    wide = delta * abs(torch.tensor(share / (1 - share), dtype=G.dtype).log()).to(G.device)
    low, high = G.min() - wide, G.max() + wide
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        more = torch.sigmoid((G - middle) / delta).mean() > share
        low, high = torch.where(more, middle, low), torch.where(more, high, middle)
    return (low + high) / 2
