"""What the residuals of a point prove, as a user reads it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from mossp._base.types import PyTree
from mossp.certificates.blocks import (
    BLOCKS,
    ERRORS,
    FRESH_SAMPLES,
    block_shape,
    length_of_mean,
    mean_product,
    value_and_gradients,
)
from mossp.certificates.residuals import Residuals, Scales, residuals, scales
from mossp.certificates.witness import Witness
from mossp.oracles import Oracles

__all__ = [
    "BLOCKS",
    "ERRORS",
    "FIRST_ORDER",
    "FRESH_SAMPLES",
    "LARGE",
    "RESIDUALS",
    "Certificate",
    "Expectation",
    "Residuals",
    "Scales",
    "Witness",
    "block_shape",
    "certificate",
    "expectation",
    "length_of_mean",
    "mean_product",
    "residuals",
    "scales",
    "value_and_gradients",
]

# Changes of x up to this part of it describe c to first order. They do not for exp(x) - 1, whose
# scale x exp(x) is at most 709 times its value, however large that is.
FIRST_ORDER = 1e-3
LARGE = 1e6  # multipliers beyond this many times what they balance are warned of

RESIDUALS = ("criticality", "proximity", "feasibility", "complementarity")


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The residuals of one point, and what they prove.

    With `u = grad f(x) + J(x) q + s_h - s_g`, q the multipliers, and c the constraints.

    Attributes
    ----------
    criticality : float
        `||u||`
    proximity : float
        `||x - y||`
    feasibility : float
        `||(c_E, [c_I]_+)||`
    infeasible_stationarity : float
        `||J (c_E, [c_I]_+)||`
    complementarity : float
        `||min(q_I, -c_I)||`
    multipliers : dict
        Under "equality" and "inequality", in the shapes of the constraints.
    values : dict
        The constraints at x, in the same way.
    smallest_multiplier : float
        Of the inequalities; infinity without any.
    samples : int or None
        Samples behind the gradient; None when it is exact.
    form : str
        "witness": y and the subgradients come from the method's last step. "exact": `y = x`, and u
        is the shortest one over all multipliers and subgradients.
    criticality_error : float
        Two standard errors of an estimated `||u||`, which `is_kkt` adds to it: what is below tol
        then is so but for a chance of a few per cent.
    feasibility_error : float
        Where constraints are means over samples without end: from the estimate to the upper end of
        a 95 % interval, which `is_kkt` adds.
    criticality_scale, proximity_scale, feasibility_scale, complementarity_scale : float
        What each residual is divided by where it is read relative to the terms it is made of
        (`relative`); at least 1.
    largest_multiplier : float
        `max |q_j| / criticality_scale`: huge where constraints degenerate.
    """

    criticality: float
    proximity: float
    feasibility: float
    infeasible_stationarity: float
    complementarity: float
    multipliers: dict[str, PyTree]
    smallest_multiplier: float
    samples: int | None
    form: str
    criticality_error: float = 0.0
    feasibility_error: float = 0.0
    criticality_scale: float = 1.0
    proximity_scale: float = 1.0
    feasibility_scale: float = 1.0
    complementarity_scale: float = 1.0
    largest_multiplier: float = 0.0
    values: dict[str, PyTree] = dataclasses.field(default_factory=dict)

    def is_kkt(self, eps: float, relative: bool = False) -> bool:
        """An eps-KKT point: critical, feasible, q_I >= 0, complementary.

        Parameters
        ----------
        eps : float
            What each residual may be at most.
        relative : bool
            Whether each is compared with eps times its scale, as `success` asks.
        """
        return self.smallest_multiplier >= 0 and all(
            self.bound(name, relative) <= eps for name in RESIDUALS
        )

    def is_stationary(self, eps: float) -> bool:
        """An eps-stationary point: feasible, or stuck at a stationary point of `||c||^2`."""
        critical = all(self.bound(n, False) <= eps for n in RESIDUALS if n != "feasibility")
        return critical and self.smallest_multiplier >= 0 and self.infeasible_stationarity <= eps

    def relative(self, name: str) -> float:
        """A residual divided by its scale.

        Examples
        --------
        >>> import numpy as np, mossp
        >>> problem = mossp.Problem(lambda x: 1e6 * x[0], equality=lambda x: x @ x - 1.0)
        >>> found = mossp.solve(problem, np.array([0.6, 0.8])).certificate
        >>> found.criticality_scale, found.relative("criticality") <= 1e-10
        (1000000.0, True)
        """
        return float(getattr(self, name) / getattr(self, f"{name}_scale"))

    def bound(self, name: str, relative: bool) -> float:
        """What a residual is at most, the error of an estimate included."""
        value = float(getattr(self, name) + self.error(name))
        scaled = value / getattr(self, f"{name}_scale")
        eased = relative and (name != "feasibility" or scaled <= FIRST_ORDER)
        return scaled if eased else value

    def error(self, name: str) -> float:
        """How much larger than its estimate a residual may be; 0 where it is exact."""
        return float(getattr(self, f"{name}_error", 0.0))

    @property
    def worst(self) -> float:
        """The smallest eps for which `is_kkt(eps)` holds."""
        return self._worst(relative=False)

    @property
    def worst_relative(self) -> float:
        """The smallest eps for which `is_kkt(eps, relative=True)` holds."""
        return self._worst(relative=True)

    def _worst(self, relative: bool) -> float:
        bounds = [self.bound(name, relative) for name in RESIDUALS]
        bad = self.smallest_multiplier < 0 or any(b != b for b in bounds)  # NaN proves nothing
        return float("inf") if bad else max(bounds)


def certificate(oracles: Oracles, r: Residuals, samples: int | None, form: str) -> Certificate:
    """The residuals of one witness, as a user reads them."""
    q = np.asarray(r.q, np.float64)
    q_I = q[oracles.m_E :]
    return Certificate(
        criticality=float(r.criticality),
        proximity=float(r.proximity),
        feasibility=float(r.feasibility),
        infeasible_stationarity=float(r.infeasible_stationarity),
        complementarity=float(r.complementarity),
        multipliers=oracles.named(q),
        values=oracles.named(np.asarray(r.c, np.float64)),
        smallest_multiplier=float(q_I.min()) if q_I.size else float("inf"),
        samples=samples,
        form=form,
        criticality_error=float(r.criticality_error),
        feasibility_error=float(r.feasibility_error),
        **_scale_fields(r.scales),
    )


def _scale_fields(found: Scales) -> dict[str, float]:
    """As a Certificate has them."""
    named = found._asdict()
    return {
        name if name == "largest_multiplier" else f"{name}_scale": float(value)
        for name, value in named.items()
    }


class Expectation(NamedTuple):
    """The paper's notion: root mean squares over replicas at a uniformly random step.

    Each residual comes with its standard error, NaN for a single replica.
    """

    criticality: float
    criticality_se: float
    proximity: float
    proximity_se: float
    feasibility: float
    feasibility_se: float
    infeasible_stationarity: float
    infeasible_stationarity_se: float
    replicas: int


def expectation(r: Residuals) -> Expectation:
    """sqrt(mean of squares), and by the delta method se(mean of squares) / (2 root)."""
    values: dict[str, float] = {}
    count = len(np.asarray(r.criticality))
    for name in ("criticality", "proximity", "feasibility", "infeasible_stationarity"):
        squares = np.asarray(getattr(r, name), np.float64) ** 2
        root = float(np.sqrt(squares.mean()))
        error = float(squares.std(ddof=1) / np.sqrt(count)) if count > 1 else np.nan
        values[name] = root
        values[name + "_se"] = error / (2 * root) if root > 0 else error
    return Expectation(**values, replicas=count)
