"""What a method may call: f, c, h and g as functions of the vector x in R^n.

min  f(x) + h(x) - g(x)    s.t.  c_E(x) = 0,  c_I(x) <= 0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from types import ModuleType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.power import spectral_norm
from mossp._base.printing import quoted
from mossp._base.programs import ProgramSet
from mossp._base.structure import Structure
from mossp._base.tracing import Code, Function, same_bits
from mossp._base.types import (
    AnyArray,
    AnyNumber,
    Batch,
    ConstraintValues,
    LossFunction,
    Mask,
    Multipliers,
    Namespace,
    Number,
    PyTree,
    Scalar,
    Vector,
)
from mossp.data import Compiled
from mossp.functions import numbers_of
from mossp.losses import Loss
from mossp.regularizers import Regularizer, Relaxed


def namespace(x: AnyArray) -> ModuleType:
    """jax.numpy for an array of JAX, NumPy for anything else."""
    return jnp if isinstance(x, jax.Array) else np


def violated(c: AnyArray, m_E: int) -> AnyArray:
    """(c_E, [c_I]_+): what is wrong with c, whose first m_E entries are equalities."""
    xp: Namespace = namespace(c)
    return xp.concatenate([c[:m_E], xp.maximum(c[m_E:], 0.0)])


class Oracles(eqx.Module):
    """f, c, h and g as functions of the vector x in R^n; a pytree that `jit` takes as argument.

    Constraints come as one vector c = (c_E, c_I). Where the paper writes c, inequalities enter
    as [c_I]_+ (its Section 5); `positive_part` does that.
    """

    loss: LossFunction
    source: Compiled
    regularizer: Regularizer
    equality: Callable[[PyTree], PyTree] | None
    inequality: Callable[[PyTree], PyTree] | None
    structure: Structure
    equality_structure: Structure
    inequality_structure: Structure
    programs: ProgramSet = eqx.field(static=True)

    @property
    def codes(self) -> list[Code]:
        """Of the functions that the user wrote."""
        given = (self.loss, self.equality, self.inequality, self.source.function)
        functions = (function for function in given if isinstance(function, Function))
        return [function.code for function in functions if function.code is not None]

    def numbers(self) -> tuple[Hashable, ...]:
        """All numbers that the user's functions hold, by their bits."""
        return numbers_of([code.probed for code in self.codes])

    def same_functions(self, other: Oracles) -> bool:
        """Whether the user's functions, and the regulariser, compute the same in both."""
        mine, others = (jax.tree.leaves(o.regularizer) for o in (self, other))
        same = len(mine) == len(others) and all(map(same_bits, mine, others))
        return same and self.programs is other.programs and self.numbers() == other.numbers()

    @property
    def m_E(self) -> int:
        return self.equality_structure.size

    @property
    def m(self) -> int:
        return self.m_E + self.inequality_structure.size

    @property
    def is_equality(self) -> Mask:
        """True for the entries of c that are equalities."""
        return np.arange(self.m) < self.m_E

    @property
    def finite_sum(self) -> bool:
        """Whether full gradients can be had: a deterministic loss is a sum of one term."""
        return self.source.finite_sum

    @property
    def convex(self) -> bool:
        """Whether any critical point is known to be a minimum."""
        return self.relaxable and self.regularizer.convex

    @property
    def relaxable(self) -> bool:
        """Whether all but -g is known to be convex."""
        return isinstance(self.loss, Loss) and self.loss.convex and self.m == 0

    def relaxed(self, part: Number) -> Oracles:
        """The problem without -g, and with a part of h."""
        relaxed = Relaxed(self.regularizer, part)
        return eqx.tree_at(lambda o: o.regularizer, self, relaxed, is_leaf=lambda r: r is relaxed)

    # f ------------------------------------------------------------------------------------

    def f(self, x: Vector, batch: Batch) -> Scalar:
        args = () if self.source.deterministic else (batch,)
        return self.loss(self.structure.unravel(x), *args)

    def gradient(self, x: Vector, batch: Batch) -> Vector:
        return jax.grad(self.f)(x, batch)

    def full_value(self, x: Vector) -> Scalar:
        return self.source.mean(lambda batch: self.f(x, batch))

    def full_gradient(self, x: Vector) -> Vector:
        return self.source.mean(lambda batch: self.gradient(x, batch))

    @property
    def large(self) -> bool:
        """Whether the user's functions are long programs, of which a copy takes long to compile."""
        return self.programs.large

    def along(self, function: Callable[[Vector], Vector], x: Vector, v: Vector) -> Vector:
        """The derivative of a gradient along v, such as a Hessian-vector product.

        Of a long program by central differences: it is not differentiated twice, and stands in
        what is compiled once.
        """
        if not self.large:
            return jax.jvp(function, (x,), (v,))[1]
        # eps^{1/3} balances truncation and rounding.
        size = jnp.finfo(x.dtype).eps ** (1 / 3) * jnp.maximum(jnp.linalg.norm(x), 1.0)
        step = size / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(x.dtype).tiny)
        ahead, behind = jax.lax.map(function, jnp.stack([x + step * v, x - step * v]))
        return (ahead - behind) / (2 * step)

    # c ------------------------------------------------------------------------------------

    def c(self, x: Vector) -> ConstraintValues:
        """(c_E(x), c_I(x)) as one vector."""
        tree = self.structure.unravel(x)
        values = [c(tree) for c in (self.equality, self.inequality) if c is not None]
        parts = [jnp.ravel(leaf).astype(x.dtype) for leaf in jax.tree.leaves(values)]
        return jnp.concatenate(parts) if parts else jnp.zeros(0, x.dtype)

    def positive_part(self, c: AnyArray) -> AnyArray:
        """(c_E, [c_I]_+), in NumPy or in JAX; likewise for multipliers, nonnegative on c_I."""
        return violated(c, self.m_E)

    def multipliers(self, x: Vector, lam: Multipliers, rho: Number) -> Multipliers:
        """q = lam + rho c(x), and [.]_+ of that for inequalities."""
        return self.positive_part(lam + rho * self.c(x))

    def constraint_gradient(self, x: Vector, rho: Number, lam: Multipliers | float = 0.0) -> Vector:
        """J(x) q with q = lam + rho c(x), by one vjp; never a Jacobian."""
        if self.m == 0:
            return jnp.zeros_like(x)
        c, pullback = jax.vjp(self.c, x)
        return pullback(self.positive_part(lam + rho * c))[0]

    def jacobian_norm_squared(self, x: Vector, rows: AnyNumber = 1.0) -> Scalar:
        """||J||^2 over the given rows (0/1 weights), by power iteration on J J'."""
        _, forward = jax.linearize(self.c, x)
        _, backward = jax.vjp(self.c, x)
        return spectral_norm(lambda v: backward(rows * forward(v))[0], x.size, x.dtype)

    def violation(self, x: Vector) -> Scalar:
        """||(c_E(x), [c_I(x)]_+)||."""
        return jnp.linalg.norm(self.positive_part(self.c(x)))

    def violation_l1(self, x: Vector) -> Scalar:
        """||(c_E(x), [c_I(x)]_+)||_1, in which an exact penalty measures it."""
        return jnp.sum(jnp.abs(self.positive_part(self.c(x))))

    def named(self, lam: AnyArray) -> dict[str, PyTree]:
        """A vector of multipliers in the shapes and under the names of the user's constraints."""
        return {
            name: structure.unravel(part)
            for name, structure, part in (
                ("equality", self.equality_structure, lam[: self.m_E]),
                ("inequality", self.inequality_structure, lam[self.m_E :]),
            )
            if structure.size
        }

    def constraint_names(self) -> list[str]:
        """One for each entry of c, by the user's names: 'fpr', 'groups[2]', 'equality[0]'."""
        names = []
        for kind, structure in (
            ("equality", self.equality_structure),
            ("inequality", self.inequality_structure),
        ):
            for path, shape in zip(structure.paths, structure.shapes, strict=True):
                called = quoted(path) if path else kind
                places = np.ndindex(*shape) if math.prod(shape) > 1 else [()]
                names += [called + (f"[{', '.join(map(str, i))}]" if i else "") for i in places]
        return names
