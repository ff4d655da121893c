"""MoSSP as an optimiser of PyTorch: sparse networks, with constraints on their weights.

Solves ::

    min_x  E[f(x; B)] + h(x) - g(x)   subject to  c_E(x) = 0,  c_I(x) <= 0

f is the loss that the closure computes on a mini-batch B, h - g any regulariser of
`mossp.regularizers`, and x the entries of the parameters. A step is ::

    d  = (1 - alpha) d + alpha gf(x; B)                   "polyak"
    d  = gf(x; B) + (1 - alpha) (d - gf(x_before; B))     "recursive"
    q  = lam + rho c(x)                                   (inequalities: [.]_+)
    S  = d + J(x) q
    x+ = prox_{mu h}(z - mu S)
    z+ = z - beta (prox_{mu g}(z) - x+)

with d = gf(x; B) the first time. mu is the learning rate, `lr` in the parameter groups, so that
the schedulers of torch.optim.lr_scheduler act on it. The zeros of prox_{mu h} are exact. lam is 0
unless multipliers are asked for: then, as in `mossp.MoSSPAL`, ::

    lam+ = lam + dual rho w c(x+), kept within +-bound    (inequalities: [.]_+)

and w multiplies rho in q too: `w = max_i ||J_i||^2 / ||J_j||^2` makes the rows of J equally long at
the first step, which costs a backward pass a constraint, once. Constraints that are means over
data, of which a step sees a mini-batch, are `Expected`: c(x) is tracked, and J q is part of d.

A concave part -E[g(x; xi)] of the objective, `concave`, has no proximal map: y follows that of
E[g] + g_r, g_r the regulariser's own g, by subgradients on mini-batches, and x does on its side.
With tau = mu eta / (mu + eta) the last two lines are then, as in `mossp.MoSSP`, ::

    v  = (1 - alpha) v + alpha dg(y; B)
    x+ = prox_{tau h}(tau (z / mu + x / eta - S))
    y+ = prox_{tau g_r}(tau (z / mu + y / eta - v))
    z+ = z - beta (y+ - x+)

Examples
--------
>>> import torch
>>> from mossp.torch import MoSSP
>>> _ = torch.manual_seed(0)
>>> X = torch.randn(500, 20)
>>> y = X[:, :3].sum(1, keepdim=True)
>>> model = torch.nn.Linear(20, 1)
>>> optimizer = MoSSP(
...     [{"params": [model.weight], "regularizer": "mcp:0.2"}, {"params": [model.bias]}],
...     equality=lambda: model.weight.square().sum() - 3.0,
... )
>>> for _ in range(300):
...     rows = torch.randint(500, (32,))
...     def closure():
...         loss = torch.nn.functional.mse_loss(model(X[rows]), y[rows])
...         loss.backward()
...         return loss
...     loss = optimizer.step(closure)
>>> int((model.weight != 0).sum()), optimizer.violation() < 0.01
(3, True)
"""

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError("mossp.torch needs PyTorch: pip install 'mossp[torch]'") from None

from mossp.torch.evaluation import Evaluation
from mossp.torch.expected import Expected
from mossp.torch.finite import NonFiniteError
from mossp.torch.optimizer import MoSSP
from mossp.torch.partial_auc import PartialAUC, partial_auc_loss, partial_auc_parts

__all__ = [
    "Evaluation",
    "Expected",
    "MoSSP",
    "NonFiniteError",
    "PartialAUC",
    "partial_auc_loss",
    "partial_auc_parts",
]
