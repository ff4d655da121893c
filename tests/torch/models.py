"""A small model, its constraints, and the same run in JAX."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch

import mossp
from mossp.schedules import Parameters

N, n, B, STEPS = 20, 6, 4, 50
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(N, n)), np.where(rng.random(N) < 0.5, -1.0, 1.0)
X0, ROWS = rng.normal(size=n), rng.integers(0, N, (STEPS, B))
W = rng.normal(size=(2, n))
MU, RHO = rng.uniform(0.01, 0.03, STEPS), rng.uniform(1, 3, STEPS)
ALPHA = np.append(1.0, rng.uniform(0.05, 0.9, STEPS - 1))
REGULARIZERS = {
    "none": None,
    "L1": mossp.L1(0.3),
    "L1MinusL2": mossp.L1MinusL2(0.3),
    "MCP": mossp.MCP(0.3, 2.0),
    "CappedL1": mossp.CappedL1(0.3, 0.4),
    "TruncatedL1": mossp.TruncatedL1(0.3, 2),
    "Group": mossp.Group(mossp.MCP(0.3), [0, 0, 1, 1, 2, 2]),
    "LogSum": mossp.LogSum(0.1, 0.5),
    "ElasticNet": mossp.ElasticNet(0.3),
}


class Model(torch.nn.Module):
    """A linear classifier whose weights are in two parameters of different shapes."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        x = torch.tensor(X0, dtype=dtype)
        self.a = torch.nn.Parameter(x[:2].reshape(1, 2).clone())
        self.b = torch.nn.Parameter(x[2:].clone())

    @property
    def x(self):
        return torch.cat([self.a.reshape(-1), self.b])

    def forward(self, rows):
        margins = torch.as_tensor(Y[rows]) * (torch.as_tensor(X[rows]) @ self.x.double())
        return torch.nn.functional.softplus(-margins).mean()


def sphere(model):
    return model.x @ model.x - 1.0


def planes(model):
    return {"w": torch.as_tensor(W, dtype=model.b.dtype) @ model.x - 0.1}


def constrained(model, **settings):
    """Both kinds of constraints; partial, so that copies and pickles have their own model."""
    partial = functools.partial
    return {"equality": partial(sphere, model), "inequality": partial(planes, model), **settings}


def closure_of(model, rows):
    def closure():
        loss = model(rows)
        loss.backward()
        return loss

    return closure


def run(model, optimizer, batches=ROWS):
    """The points of every step."""
    seen = []
    for rows in batches:
        optimizer.step(closure_of(model, rows))
        seen.append(model.x.detach().numpy().copy())
    return np.stack(seen)


def by_jax(method, reg, concave=None, eta=None):
    with jax.enable_x64(True):
        problem = mossp.Problem(
            mossp.losses.logistic, (X, Y), reg or mossp.Zero(), concave=concave,
            equality=lambda x: x @ x - 1.0, inequality=lambda x: W @ x - 0.1,
        )  # fmt: skip
        oracles = problem.oracles(X0)

        def step(state, rows, now):
            return method.step(oracles, Parameters(*now), state, oracles.source.batch(rows, B))

        step = jax.jit(step)
        state, states = method.init(oracles, jnp.asarray(X0), jnp.zeros(n)), []
        for rows, *now in zip(ROWS, MU, RHO, ALPHA, MU if eta is None else eta, strict=True):
            state = step(state, jnp.asarray(rows, jnp.int32), now)
            states.append(jax.tree.map(np.asarray, state))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


def falling(k):
    return 0.02 / (k + 1) ** 0.1


VARYING = {"mu": MU.__getitem__, "rho": RHO.__getitem__, "alpha": ALPHA.__getitem__}
