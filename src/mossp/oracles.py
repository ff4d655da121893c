"""What a method may call: f, c, h and g as functions of the vector x in R^n.

min  f(x) + h(x) - g(x)    s.t.  c_E(x) = 0,  c_I(x) <= 0

The regulariser's g has a proximal map. A concave part -E[g(x, xi)] that has none is known by
subgradients on rows (`concave`); declared smooth, it may be taken into f (`merged`), and at the end
of a run it is linearised (`linearised`), which leaves a problem without it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp._base.code import Code, Function
from mossp._base.differences import difference_step
from mossp._base.module import Module
from mossp._base.power import spectral_norm
from mossp._base.printing import quoted
from mossp._base.programs import ProgramSet
from mossp._base.structure import Part, Structure
from mossp._base.tracing import same_bits
from mossp._base.types import (
    AnyArray,
    AnyNumber,
    Array,
    Batch,
    ConstraintValues,
    Jacobian,
    LossFunction,
    Mask,
    Multipliers,
    Namespace,
    Number,
    PyTree,
    Scalar,
    Vector,
)
from mossp.data import Compiled, NoData, Rows, joined
from mossp.functions import numbers_of
from mossp.losses import Loss
from mossp.regularizers import Regularizer, Relaxed, Tilted
from mossp.terms import Concave, Difference, Terms
from mossp.terms import Number as SourceNumber

# Products with J that may be made for the lengths of its rows.
FEW_PRODUCTS = 512


def namespace(x: AnyArray) -> ModuleType:
    """jax.numpy for an array of JAX, NumPy for anything else."""
    return jnp if isinstance(x, jax.Array) else np


def violated(c: AnyArray, m_E: int) -> AnyArray:
    """(c_E, [c_I]_+): what is wrong with c, whose first m_E entries are equalities."""
    xp: Namespace = namespace(c)
    return xp.concatenate([c[:m_E], xp.maximum(c[m_E:], 0.0)])


class Oracles(Module):
    """f, c, h and g as functions of the vector x in R^n; a pytree that `jit` takes as argument.

    Constraints come as one vector c = (c_E, c_I). Where the paper writes c, inequalities enter
    as [c_I]_+ (its Section 5); `positive_part` does that.
    """

    loss: LossFunction
    source: Compiled  # of the rows of the loss: number 0
    regularizer: Regularizer
    terms: Terms  # c
    others: tuple[Compiled, ...]  # sources of rows that constraints have of their own: 1, 2, ...
    # Rows that stand for all, by the number of their source: for samples without end, and where
    # constants are measured; None where a source needs none.
    pools: tuple[Compiled | None, ...]
    structure: Structure
    equality_structure: Structure
    inequality_structure: Structure
    value_sizes: tuple[int | None, ...] = eqx.field(static=True)
    programs: ProgramSet = eqx.field(static=True)
    pooled: bool = eqx.field(default=False, static=True)  # whether means are those of the pools
    concave: Concave | None = None  # -E[g(x, xi)]

    @property
    def codes(self) -> list[Code]:
        """Of the functions that the user wrote."""
        sources = (self.source, *self.others)
        loss: Any = self.loss
        f_and_g = [loss.loss, loss.concave] if isinstance(loss, Difference) else [loss]
        f_and_g += [] if self.concave is None else [self.concave.function]
        given = [*(t.function for t in self.terms.terms), *(s.function for s in sources)]
        given = [f_and_g[0], *given, *f_and_g[1:]]
        functions = (function for function in given if isinstance(function, Function))
        return [function.code for function in functions if function.code is not None]

    def numbers(self) -> tuple[Hashable, ...]:
        """All numbers that the user's functions hold, by their bits."""
        return numbers_of([code.probed for code in self.codes])

    def same_functions(self, other: Oracles) -> bool:
        """Whether the user's functions, and the regulariser, compute the same in both."""
        if other is self:
            return True
        mine, others = (jax.tree.leaves(o.regularizer) for o in (self, other))
        same = len(mine) == len(others) and all(map(same_bits, mine, others))
        return same and self.programs is other.programs and self.numbers() == other.numbers()

    @property
    def mesh(self) -> Any:
        """The devices that rows are divided between; None where they are not."""
        each = (source.mesh for source in (self.source, *self.others))
        return next((mesh for mesh in each if mesh is not None), None)

    @property
    def reads(self) -> bool:
        """Whether rows are read while programs run, which may fail."""
        return any(source.reads for source in (self.source, *self.others))

    @property
    def failure(self) -> Exception | None:
        """What went wrong while rows were read."""
        each = (source.failure for source in (self.source, *self.others) if source.reads)
        return next((error for error in each if error is not None), None)

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
        return self.source.finite_sum and not self.endless and self.known_concave

    @property
    def endless(self) -> list[int]:
        """The sources of constraints that have no end, by number."""
        numbers = (number for number in self.terms.numbers if number is not None)
        return [number for number in numbers if not self.source_of(number).finite_sum]

    @property
    def looked_at(self) -> list[int]:
        """The sources that constraints and the concave part look at, by number."""
        numbers = {number for number in self.terms.numbers if number is not None}
        return sorted(numbers | (set() if self.concave is None else {self.concave.rows}))

    @property
    def samples_constraints(self) -> bool:
        """Whether a constraint is a mean over rows."""
        return self.terms.any_sampled

    def source_of(self, number: SourceNumber) -> Compiled:
        if number is None:
            return NoData()
        return self.others[number - 1] if number else self.source

    @property
    def steps(self) -> Any:
        """What the mini-batches of steps are made from: rows for f, J and c."""
        looked_at = tuple(k in self.terms.numbers for k in range(1 + len(self.others)))
        return joined((self.source, *self.others), looked_at, self.value_sizes)

    @property
    def rows_per_pass(self) -> int:
        """Samples that one full gradient of f, c and g differentiates; without data, one."""
        numbers = [number for number in self.terms.numbers if number is not None]
        own = [] if self.concave is None else [self.concave.rows]
        return (self.source.rows or 1) + sum(self.source_of(k).rows or 0 for k in numbers + own)

    def on_pools(self) -> Oracles:
        """With constraints and g as means over some rows, for what is measured again and again."""
        needed = any(pool is not None for pool in self.pools)
        return dataclasses.replace(self, pooled=True) if needed else self

    @property
    def convex(self) -> bool:
        """Whether any critical point is known to be a minimum."""
        return self.relaxable and not self.subtracts

    @property
    def relaxable(self) -> bool:
        """Whether all but -g is known to be convex."""
        return isinstance(self.loss, Loss) and self.loss.convex and self.m == 0

    @property
    def subtracts(self) -> bool:
        """Whether the objective has a concave part: the regulariser's g, or a mean over rows."""
        return self.concave is not None or not self.regularizer.convex

    def relaxed(self, part: Number) -> Oracles:
        """The problem without -g, and with a part of h."""
        return dataclasses.replace(self, regularizer=Relaxed(self.regularizer, part), concave=None)

    def linearised(self, s: AnyArray) -> Oracles:
        """The problem with <s, x> in place of E[g(x, xi)]."""
        return dataclasses.replace(self, regularizer=Tilted(self.regularizer, s), concave=None)

    @property
    def mergeable(self) -> bool:
        """Whether f and g look at the same rows, so that f - g is one loss."""
        return self.concave is not None and self.concave.rows == 0

    def merged(self) -> Oracles:
        """The problem with f - g as its loss."""
        assert self.concave is not None
        loss = Difference(self.loss, self.concave.function)
        return dataclasses.replace(self, loss=loss, concave=None)

    def restricted(self, places: AnyArray) -> Oracles:
        """The problem in some entries of x, in ascending order; the others are 0."""
        structure = Part.of_places(self.structure, jnp.asarray(places, jnp.int32))
        return dataclasses.replace(
            self,
            structure=structure,
            terms=dataclasses.replace(self.terms, structure=structure),
            regularizer=self.regularizer.part(places, self.structure.size),
        )

    def under(self, places: AnyArray) -> Oracles:
        """The problem under some of its constraints, by their places in c, in ascending order.

        All equalities are among them.
        """
        inequality = Structure.of(np.zeros(len(places) - self.m_E))
        return dataclasses.replace(
            self, terms=self.terms.under(places), inequality_structure=inequality
        )

    def moved(self, by: AnyArray) -> Oracles:
        """The problem with c + by in place of c."""
        return dataclasses.replace(self, terms=self.terms.moved(by))

    # f ------------------------------------------------------------------------------------

    def f(self, x: Vector, batch: Batch) -> Scalar:
        rows = batch.gradients[0] if isinstance(batch, Rows) else batch
        args = () if self.source.deterministic else (rows,)
        return self.loss(self.structure.unravel(x), *args)

    def gradient(self, x: Vector, batch: Batch) -> Vector:
        return jax.grad(self.f)(x, batch)

    def full_value(self, x: Vector) -> Scalar:
        """F but for the regulariser: f(x) - E[g(x, xi)]."""
        f = self.source.mean(lambda batch: self.f(x, batch))
        return f if self.concave is None else f - self.concave_value(x)

    def value_on(self, x: Vector, rows: Batch) -> Scalar:
        """The same on some rows of the loss, which stand for all."""
        f = self.f(x, rows)
        if self.concave is None:
            return f
        return f - (self.g(x, rows) if self.concave.rows == 0 else self.concave_value(x))

    def slope(self, x: Vector) -> Vector:
        """grad f(x) - s, s a subgradient of E[g] at x."""
        gradient = self.full_gradient(x)
        return gradient if self.concave is None else gradient - self.concave_slope(x)

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
        step = difference_step(x, v)
        ahead, behind = jax.lax.map(function, jnp.stack([x + step * v, x - step * v]))
        return (ahead - behind) / (2 * step)

    # -E[g(x, xi)] -------------------------------------------------------------------------

    @property
    def known_concave(self) -> bool:
        """Whether subgradients of E[g] over all rows can be had."""
        return self.concave is None or self.source_of(self.concave.rows).finite_sum

    def g(self, x: Vector, batch: Batch) -> Scalar:
        """The mean over rows of its source; a step's batch has those of all sources."""
        assert self.concave is not None
        number = self.concave.rows
        rows = batch.gradients[number] if isinstance(batch, Rows) else batch
        args = () if self.source_of(number).deterministic else (rows,)
        return self.concave.function(self.structure.unravel(x), *args)

    def subgradient(self, x: Vector, batch: Batch) -> Vector:
        """A subgradient of g at x on some rows, by differentiation."""
        return jax.grad(self.g)(x, batch)

    def concave_value(self, x: Vector) -> Scalar:
        """E[g(x, xi)] over all rows; over a pool where they have no end."""
        assert self.concave is not None
        return self.mean(self.concave.rows, lambda batch: self.g(x, batch))

    def concave_slope(self, x: Vector) -> Vector:
        """A subgradient of E[g] at x over all rows; over a pool where they have no end."""
        assert self.concave is not None
        return self.mean(self.concave.rows, lambda batch: self.subgradient(x, batch))

    # c ------------------------------------------------------------------------------------

    def mean(self, number: SourceNumber, function: Callable[[Batch], PyTree]) -> PyTree:
        """The mean over the rows of a source; over its pool where it has no end."""
        source = self.source_of(number)
        pool = None if number is None else self.pools[number]
        if pool is not None and (self.pooled or not source.finite_sum):
            source = pool
        return source.mean(function)

    def means(self, function: Callable[[SourceNumber, Batch], PyTree]) -> list[PyTree]:
        """The means of function(number, rows) over each source that constraints look at."""
        numbers = self.terms.numbers
        return [self.mean(number, functools.partial(function, number)) for number in numbers]

    def c(self, x: Vector) -> ConstraintValues:
        """(c_E(x), c_I(x)) as one vector, over all rows."""
        if self.m == 0:
            return jnp.zeros(0, x.dtype)
        return self.terms.joined(self.means(lambda k, rows: self.terms.on(k, x, rows)))

    def linearized(self, x: Vector) -> tuple[ConstraintValues, Callable[[Multipliers], Vector]]:
        """(c(x), the map q -> J(x) q), by reverse mode; never a Jacobian."""
        if self.samples_constraints:
            return self.c(x), lambda q: self.pull(x, q)
        c, pullback = jax.vjp(self.c, x)
        return c, lambda q: pullback(q)[0]

    def pull(self, x: Vector, q: Multipliers) -> Vector:
        """J(x) q, over all rows."""
        pulls = self.means(lambda k, rows: self.terms.pull(k, x, rows, q))
        return sum(pulls, start=jnp.zeros_like(x))

    def tangent(self, x: Vector) -> Callable[[Vector], ConstraintValues]:
        """The map v -> J(x)'v, how c changes along v, by forward mode."""
        if not self.samples_constraints:
            return jax.linearize(self.c, x)[1]
        terms = self.terms
        return lambda v: terms.joined(self.means(lambda k, rows: terms.push(k, x, rows, v)))

    def jacobian(self, x: Vector) -> Jacobian:
        """J, one row per constraint, over all rows."""
        return self.terms.joined(self.means(lambda k, rows: self.terms.jacobian(k, x, rows)[1]))

    def first_order(self, x: Vector) -> tuple[Scalar, Vector, ConstraintValues, Jacobian]:
        """(f, grad f, c, J) at x, J with one row per constraint; one pass over each source."""
        terms, loss = self.terms, jax.value_and_grad(self.f)

        def with_loss(batch: Batch) -> PyTree:
            return loss(x, batch), terms.jacobian(0, x, batch) if 0 in terms.numbers else None

        (f, gradient), shared = self.source.mean(with_loss)
        if self.m == 0:
            return f, gradient, jnp.zeros(0, x.dtype), jnp.zeros((0, x.size), x.dtype)
        parts = [
            shared if k == 0 else self.mean(k, functools.partial(terms.jacobian, k, x))
            for k in terms.numbers
        ]
        c, J = (terms.joined(part) for part in zip(*parts, strict=True))
        return f, gradient, c, J

    def bend(self, x: Vector, q: Multipliers, v: Vector) -> Vector:
        """sum_j q_j Hess c_j(x) v."""
        if not self.samples_constraints:
            return jax.jvp(lambda x: self.linearized(x)[1](q), (x,), (v,))[1]
        pull = self.terms.pull
        bends = self.means(lambda k, rows: jax.jvp(lambda x: pull(k, x, rows, q), (x,), (v,))[1])
        return sum(bends, start=jnp.zeros_like(x))

    def bend_along(self, x: Vector, v: Vector) -> ConstraintValues:
        """v'Hess c_j(x) v for each constraint."""
        push = self.terms.push
        bends = self.means(lambda k, rows: jax.jvp(lambda x: push(k, x, rows, v), (x,), (v,))[1])
        return self.terms.joined(bends)

    def slopes(self, q: Multipliers) -> list[tuple[Compiled, Callable[[Vector, Batch], Vector]]]:
        """grad f + J q as a sum of means over sources: (source, (x, batch) -> gradient) each."""
        terms = self.terms

        def with_loss(x: Vector, batch: Batch) -> Vector:
            if 0 not in terms.numbers:
                return self.gradient(x, batch)
            own = q[terms.places(0)]
            return jax.grad(lambda x: self.f(x, batch) + own @ terms.on(0, x, batch))(x)

        def alone(number: SourceNumber, x: Vector, batch: Batch) -> Vector:
            return terms.pull(number, x, batch, q)

        others = [number for number in terms.numbers if number != 0]
        rest = [(self.source_of(number), functools.partial(alone, number)) for number in others]
        return [(self.source, with_loss), *rest]

    # c on some rows, by the number of their source: those of a step ---------------------------

    def sampled_c(self, x: Vector, rows: tuple[Batch, ...]) -> ConstraintValues:
        """c with means over some rows in place of all."""
        on, numbers = self.terms.on, self.terms.numbers
        return self.terms.joined([on(k, x, None if k is None else rows[k]) for k in numbers])

    def sampled_pull(self, x: Vector, q: Multipliers, rows: tuple[Batch, ...]) -> Vector:
        """J q of the constraints that are means over rows, with means over some of them."""
        numbers = [k for k in self.terms.numbers if k is not None]
        return sum((self.terms.pull(k, x, rows[k], q) for k in numbers), start=jnp.zeros_like(x))

    def exact_pull(self, x: Vector, q: Multipliers) -> Vector:
        """J q of the constraints that are functions of x alone."""
        if None not in self.terms.numbers:
            return jnp.zeros_like(x)
        return self.terms.pull(None, x, None, q)

    def sampled_jacobian(self, x: Vector, rows: tuple[Batch, ...]) -> Jacobian:
        """J, one row per constraint, with means over some rows."""
        of, numbers = self.terms.jacobian, self.terms.numbers
        return self.terms.joined([of(k, x, None if k is None else rows[k])[1] for k in numbers])

    def value_noise(self, x: Vector, batch_size: int) -> ConstraintValues:
        """The standard deviation of c on the rows of a step, measured on some of the rows."""
        terms, steps = self.terms, self.steps

        def of(k: SourceNumber) -> Array:
            if k is None:
                return jnp.zeros(len(terms.places(k)), x.dtype)
            noise = self.pool_of(k).deviation(lambda batch: terms.on(k, x, batch))
            return noise / jnp.sqrt(steps.values_drawn(k, batch_size))

        return terms.joined([of(k) for k in terms.numbers])

    def pool_of(self, number: int) -> Any:
        """Rows at hand of a source: all of them, or those that stand for all."""
        pool = self.pools[number]
        return pool if pool is not None else self.source_of(number)

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
        c, pull = self.linearized(x)
        return pull(self.positive_part(lam + rho * c))

    def jacobian_norm_squared(self, x: Vector, rows: AnyNumber = 1.0) -> Scalar:
        """||J||^2 over the given rows (0/1 weights), by power iteration on J J'."""
        push, (_, pull) = self.tangent(x), self.linearized(x)
        return spectral_norm(lambda v: pull(rows * push(v)), x.size, x.dtype)

    def row_lengths(self, x: Vector, most: int = FEW_PRODUCTS) -> ConstraintValues:
        """||J_j|| of each constraint, with memory for vectors only.

        By rows or by columns of J, whichever are fewer; where both are more than `most`, from that
        many vectors s of random signs: the mean of (J_j s)^2 is ||J_j||^2.
        """
        if self.m <= min(x.size, most):
            c, pull = self.linearized(x)
            unit = lambda j: jnp.zeros_like(c).at[j].set(1.0)  # noqa: E731
            return lax.map(lambda j: jnp.linalg.norm(pull(unit(j))), jnp.arange(self.m))
        push, exact = self.tangent(x), x.size <= most
        count = x.size if exact else most

        def direction(i: Any) -> Vector:
            if exact:
                return jnp.zeros_like(x).at[i].set(1.0)
            angles = (1.0 + i) * jnp.arange(1, x.size + 1, dtype=x.dtype) ** 2
            return jnp.where(jnp.cos(angles) > 0, 1.0, -1.0).astype(x.dtype)

        add = lambda i, total: total + push(direction(i)) ** 2  # noqa: E731
        squares = lax.fori_loop(0, count, add, jnp.zeros(self.m, x.dtype))
        return jnp.sqrt(squares if exact else squares / count)

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
