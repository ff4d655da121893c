"""Regularisers and constraints of the coefficients, from what an estimator was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from mossp._base.module import Module
from mossp._base.printing import shown
from mossp._base.structure import as_pytree
from mossp._base.types import Batch, PyTree
from mossp.expected import Expected, refuse_batch
from mossp.expressions import Expression, parse
from mossp.fairness import Covariance, Covariances
from mossp.regularizers import Blocks, Nonnegative, Regularizer, Weighted, named
from mossp.regularizers.strength import with_strength

OWN = ("coefficients", "negatives")  # names that an estimator gives itself


def regularizer_of(given: Any, lam: float | None, nonnegative: bool = False) -> Regularizer:
    """A regulariser from its name or itself, with strength lam if that is given."""
    if isinstance(given, str):
        made = named(given, lam)
    elif isinstance(given, Regularizer):
        made = given if lam is None else with_strength(given, float(lam))
    else:
        raise TypeError(
            "regularizer must be a name such as 'l1' or 'mcp:0.1,3', or an object such as "
            f"mossp.MCP(0.1), but {given!r} was given."
        )
    return Nonnegative(made) if nonnegative else made


def on_coefficients(
    regularizer: Regularizer, weights: Any, n: int, outputs: int, intercepts: int, penalized: bool
) -> Regularizer:
    """The regulariser of {"coef", "intercept"}: of the coefficients alone, or of both."""
    count = intercepts if penalized else 0
    if weights is not None:
        w = np.asarray(weights, np.float64)
        if w.shape != (n,):
            raise ValueError(
                f"feature_weights must have one weight for each of the {n} features, but its shape "
                f"is {w.shape}."
            )
        regularizer = Weighted(regularizer, np.concatenate([np.repeat(w, outputs), np.ones(count)]))
    return regularizer if penalized or not intercepts else Blocks({"coef": regularizer})


class OfCoefficients(Module):
    """Constraints on the coefficients of {"coef", "intercept"}, under their names.

    A function sees the coefficients, and at their end the intercept where `extended`; an
    expression may speak of both.
    """

    parts: tuple[Any, ...]
    names: tuple[str, ...] = eqx.field(static=True)
    extended: bool = eqx.field(static=True)

    def __call__(self, x: PyTree) -> Any:
        values = {
            name: part(x["coef"], x.get("intercept"))
            if isinstance(part, Expression)
            else part(x["coef"] if isinstance(part, Covariances) else seen(x, self.extended))
            for name, part in zip(self.names, self.parts, strict=True)
        }
        return values if len(values) > 1 or isinstance(self.parts[0], Expression) else values["0"]


class OfRows(Module):
    """A mean over rows as a function of {"coef", "intercept"}; it sees (X, targets, weights).

    And the offset after them, where there is one.
    """

    function: Any
    extended: bool = eqx.field(static=True)
    own: bool = eqx.field(static=True)  # whether the rows are its own
    arrays: int = eqx.field(default=3, static=True)  # how many of a batch are of the model

    def __call__(self, x: PyTree, batch: Batch) -> Any:
        return self.function(seen(x, self.extended), batch if self.own else batch[: self.arrays])


def seen(x: PyTree, extended: bool) -> Any:
    """What a function of the coefficients is given."""
    if not extended or "intercept" not in x:
        return x["coef"]
    return jnp.concatenate([x["coef"], jnp.reshape(x["intercept"], (1, *x["coef"].shape[1:]))])


def entries(given: Any) -> list[tuple[str | None, Any]]:
    """What an estimator was given as constraints, one by one, with the names of a dict."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [(str(name), one) for name, one in given.items()]
    return [(None, one) for one in (given if isinstance(given, (list, tuple)) else [given])]


def constraint_of(
    given: Any,
    relation: str,
    *,
    columns: int | Sequence[str],
    classes: int | None,
    extended: bool,
    on_data: Callable[[Covariance], Any] | None = None,
    arrays: int = 3,
) -> OfCoefficients | dict[str, Any] | None:
    """Functions, expressions, fairness bounds and means over rows, alone, in a list or a dict.

    One constraint, or several by name if there are means over rows.
    """
    parts: list[Any] = []
    names: list[str] = []
    means: dict[str, Expected] = {}
    for name, one in entries(given):
        if name in OWN:
            raise ValueError(f"A constraint cannot have the name {name!r}: choose another.")
        if isinstance(one, str):
            found = parse(one, columns, relation, classes)
            parts += found
            texts = [expression.text for expression in found]
            named = texts if name is None else [f"{name}: {text}" for text in texts]
            names += [name] if name is not None and len(found) == 1 else named
        elif isinstance(one, Expression):
            parts.append(one)
            names.append(name or one.text)
        elif isinstance(one, Covariance) and relation == "<=" and on_data is not None:
            parts.append(on_data(one))
            names.append(name or str(len(names)))
        elif isinstance(one, Expected):  # of the rows that are fitted to, in each fold its own
            of_rows = OfRows(as_pytree(one.function), extended, one.data is not None, arrays)
            means[name or f"mean {len(means)}"] = Expected(of_rows, one.data, one.batch_size)
        elif callable(one):
            refuse_batch(f"The {'equality' if relation == '=' else 'inequality'} constraint", one)
            parts.append(as_pytree(one))
            names.append(name or str(len(names)))
        else:
            what = "equality" if relation == "=" else "inequality"
            example = "sum(x**2) = 1" if relation == "=" else "norm(x[0:3]) <= 0.5"
            raise TypeError(
                f"{what} must be a function of the coefficients in JAX, text such as "
                f"'{example}', mossp.Expected(...), or a list or dict of these, but {shown(one)} "
                "was given."
            )
    if len(set(names)) < len(names):
        names = [f"{i}: {name}" for i, name in enumerate(names)]
    of_coefficients = OfCoefficients(tuple(parts), tuple(names), extended) if parts else None
    if not means:
        return of_coefficients
    return {**({"coefficients": of_coefficients} if parts else {}), **means}
