"""Ready constraints: smooth functions c, used as c(x) = 0 or as c(x) <= 0.

Each constraint is an equinox module that holds its numbers as leaves of the pytree, so that two
problems of the same shape share one compiled program. Arrays are kept in the precision they are
given in, and take that of x when they meet it. x may be an array of any shape or a pytree of
arrays; it is read as one vector, leaf by leaf and row by row, except by `Orthogonal`, which needs a
matrix.

    Sphere                x'x - r^2
    NormBudget            sum |x_i|^p - r^p, p >= 2
    Budget                w'x - limit
    Linear                A x - b
    DiagonalQuadratics    x'diag(Q_j)x / 2 + a_j'x - b_j
    Quadratics            x'Q_j x / 2 + a_j'x - b_j
    Orthogonal            the upper triangle of X'X - I
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from mossp._base.module import Module
from mossp._base.printing import shown
from mossp._base.types import AnyArray, Array, ConstraintValues, Number, PyTree, Scalar, Vector
from mossp._base.validation import is_number, number, require, require_finite, require_shape

__all__ = [
    "Budget",
    "DiagonalQuadratics",
    "Linear",
    "NormBudget",
    "Orthogonal",
    "Quadratics",
    "Sphere",
]


def _array(value: object) -> AnyArray:
    """Return NumPy, which keeps double precision even where JAX is in single; JAX arrays stay."""
    if isinstance(value, jax.core.Tracer | jax.Array):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"A constraint needs real numbers, but was given dtype {array.dtype}.")
    # A copy, so that a later change of the caller's array does not change the constraint.
    return array.astype(array.dtype if array.dtype.kind == "f" else np.float64)


class Sphere(Module):
    """Sphere `x'x - radius^2`, or, as an inequality, the ball inside it.

    Its gradient 2x vanishes at the origin: start elsewhere.

    Parameters
    ----------
    radius : float
        Positive.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.constraints import Sphere
    >>> float(Sphere(radius=2.0)(jnp.array([0.0, 3.0])))
    5.0
    """

    radius: Number = eqx.field(default=1.0, converter=number)

    def __check_init__(self) -> None:
        require_finite(type(self).__name__, "radius", self.radius)
        require(self, "radius", self.radius, "a positive radius", lambda radius: radius > 0)

    def __call__(self, x: PyTree) -> Scalar:
        v = _vector(x)
        return v @ v - jnp.square(_as(self.radius, v))


class NormBudget(Module):
    """Budget `||x||_p <= radius` in its smooth form, `sum |x_i|^p - radius^p`.

    Below order 2 the sum has no Lipschitz gradient, and at order 1 a kink at every zero, which no
    method for smooth constraints should see; there, put the norm into the regulariser (`mossp.L1`).

    Parameters
    ----------
    radius : float
        Positive.
    order : float
        The order p of the norm, at least 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.constraints import NormBudget
    >>> x = jnp.array([1.0, -2.0])
    >>> float(NormBudget(radius=3.0)(x)), float(NormBudget(radius=3.0, order=3)(x))
    (-4.0, -18.0)
    """

    radius: Number = eqx.field(converter=number)
    order: float = eqx.field(default=2.0, converter=number, static=True)

    def __check_init__(self) -> None:
        require_finite(type(self).__name__, "radius", self.radius)
        require(self, "radius", self.radius, "a positive radius", lambda radius: radius > 0)
        if not is_number(self.order, lambda order: order >= 2):
            order = f"{self.order:g}" if isinstance(self.order, float) else shown(self.order)
            raise ValueError(
                "NormBudget needs a finite order of at least 2, since a smaller one is not smooth "
                f"at zero, but order = {order}: for order 1 use the regulariser mossp.L1."
            )

    def __call__(self, x: PyTree) -> Scalar:
        v = _vector(x)
        if self.order == 2:  # v'v keeps the derivatives free of |.|
            return v @ v - jnp.square(_as(self.radius, v))
        return jnp.sum(jnp.abs(v) ** self.order) - _as(self.radius, v) ** self.order


class Budget(Module):
    """Linear budget `w'x - limit`: what x may cost at prices w.

    Parameters
    ----------
    weights : array of shape (n,)
        The prices w.
    limit : float
        What may be spent.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.constraints import Budget
    >>> float(Budget(weights=[1.0, 2.0], limit=4.0)(jnp.array([1.0, 1.0])))
    -1.0
    """

    weights: AnyArray = eqx.field(converter=_array)
    limit: Number = eqx.field(converter=number)

    def __check_init__(self) -> None:
        require_shape("Budget", "weights", self.weights, ("n",))
        require_finite("Budget", "weights", self.weights)
        require_finite("Budget", "limit", self.limit)

    def __call__(self, x: PyTree) -> Scalar:
        v = _vector(x, "Budget", self.weights.shape[-1])
        return _as(self.weights, v) @ v - _as(self.limit, v)


class Linear(Module):
    """Linear constraints `A x - b`.

    Parameters
    ----------
    A : array of shape (m, n)
    b : array of shape (m,)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.constraints import Linear
    >>> Linear(A=[[1.0, 1.0], [1.0, -1.0]], b=[1.0, 0.0])(jnp.array([2.0, 1.0])).tolist()
    [2.0, 1.0]
    """

    A: AnyArray = eqx.field(converter=_array)
    b: AnyArray = eqx.field(converter=_array)

    def __check_init__(self) -> None:
        require_shape("Linear", "A", self.A, ("m", "n"))
        require_shape("Linear", "b", self.b, (np.shape(self.A)[0],))
        require_finite("Linear", "A", self.A)
        require_finite("Linear", "b", self.b)

    def __call__(self, x: PyTree) -> ConstraintValues:
        v = _vector(x, "Linear", self.A.shape[-1])
        return _as(self.A, v) @ v - _as(self.b, v)


class DiagonalQuadratics(Module):
    """Quadratics with diagonal matrices: `c_j(x) = x'diag(Q_j)x / 2 + a_j'x - b_j`.

    Parameters
    ----------
    Q : array of shape (m, n)
        Row j is the diagonal of the j-th matrix. It may hold numbers of either sign, so that the
        constraints need not be convex.
    a : array of shape (m, n)
    b : array of shape (m,)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.constraints import DiagonalQuadratics
    >>> c = DiagonalQuadratics(Q=[[2.0, -2.0]], a=[[1.0, 0.0]], b=[3.0])
    >>> c(jnp.array([2.0, 1.0])).tolist()  # 4 - 1 + 2 - 3
    [2.0]
    """

    Q: AnyArray = eqx.field(converter=_array)
    a: AnyArray = eqx.field(converter=_array)
    b: AnyArray = eqx.field(converter=_array)

    def __check_init__(self) -> None:
        name = "DiagonalQuadratics"
        require_shape(name, "Q", self.Q, ("m", "n"))
        require_shape(name, "a", self.a, np.shape(self.Q))
        require_shape(name, "b", self.b, np.shape(self.Q)[:1])
        for field in ("Q", "a", "b"):
            require_finite(name, field, getattr(self, field))

    def __call__(self, x: PyTree) -> ConstraintValues:
        v = _vector(x, "DiagonalQuadratics", self.Q.shape[-1])
        return 0.5 * _as(self.Q, v) @ (v * v) + _as(self.a, v) @ v - _as(self.b, v)


class Quadratics(Module):
    """Quadratics `c_j(x) = x'Q_j x / 2 + a_j'x - b_j`.

    Parameters
    ----------
    Q : array of shape (m, n, n)
        The matrices need not be symmetric (only their symmetric parts matter) nor definite.
    a : array of shape (m, n)
    b : array of shape (m,)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.constraints import Quadratics
    >>> c = Quadratics(Q=[[[2.0, 1.0], [1.0, 0.0]]], a=[[0.0, 1.0]], b=[1.0])
    >>> c(jnp.array([1.0, 2.0])).tolist()  # (2 + 2 + 2) / 2 + 2 - 1
    [4.0]
    """

    Q: AnyArray = eqx.field(converter=_array)
    a: AnyArray = eqx.field(converter=_array)
    b: AnyArray = eqx.field(converter=_array)

    def __check_init__(self) -> None:
        name = "Quadratics"
        require_shape(name, "Q", self.Q, ("m", "n", "n"))
        m, n, _ = np.shape(self.Q)
        require_shape(name, "Q", self.Q, (m, n, n))
        require_shape(name, "a", self.a, (m, n))
        require_shape(name, "b", self.b, (m,))
        for field in ("Q", "a", "b"):
            require_finite(name, field, getattr(self, field))

    def __call__(self, x: PyTree) -> ConstraintValues:
        v = _vector(x, "Quadratics", self.Q.shape[-1])
        return 0.5 * (_as(self.Q, v) @ v) @ v + _as(self.a, v) @ v - _as(self.b, v)


class Orthogonal(Module):
    """Orthonormal columns of a matrix x of shape (n, k): the upper triangle of `X'X - I`.

    The k(k + 1)/2 values come row by row, the diagonal included; the lower triangle would repeat
    them. Off-diagonal values are not weighted, so that the norm of the vector is not that of the
    matrix.

    Parameters
    ----------
    rows : bool
        Whether the rows are made orthonormal instead, `X X' = I`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.constraints import Orthogonal
    >>> Orthogonal()(jnp.array([[2.0, 1.0], [0.0, 1.0], [0.0, 0.0]])).tolist()
    [3.0, 2.0, 1.0]
    """

    rows: bool = eqx.field(default=False, static=True)

    def __call__(self, x: PyTree) -> ConstraintValues:
        X = jnp.asarray(x)
        if X.ndim != 2:
            raise ValueError(
                f"Orthogonal needs a matrix x of shape (n, k), but x has shape {X.shape}: reshape "
                "it, or use Sphere for a single vector."
            )
        X = X.T if self.rows else X
        n, k = X.shape
        if k > n:
            what, other = ("rows", "columns") if self.rows else ("columns", "rows")
            raise ValueError(
                f"{k} {what} of length {n} cannot be orthonormal, and x has shape {jnp.shape(x)}: "
                f"give x at least as many {other} as {what}, or set rows={not self.rows}."
            )
        upper = np.triu_indices(k)
        return (X.T @ X - jnp.eye(k, dtype=X.dtype))[upper]


def _vector(x: PyTree, name: str = "", size: int | None = None) -> Vector:
    """Return x as one floating-point vector, of the size that the constraint `name` needs."""
    v, _ = ravel_pytree(x)
    if size is not None and v.size != size:
        raise ValueError(
            f"{name} was built for x with {size} elements, but x has {v.size}: "
            "its arrays and x0 must agree."
        )
    return v if jnp.issubdtype(v.dtype, jnp.floating) else v.astype(jnp.result_type(float))


def _as(value: AnyArray, v: Vector) -> Array:
    """Return a constant in the precision of v: float64 constants leave a float32 run as it is."""
    return jnp.asarray(value, v.dtype)
