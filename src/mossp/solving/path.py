"""A regularisation path: one problem at many strengths, each started from the one before."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from mossp._base.printing import short, shown
from mossp._base.structure import Structure
from mossp._base.types import PyTree
from mossp.newton.linear import linear_loss
from mossp.problem import Problem, check_problem
from mossp.regularizers import Regularizer
from mossp.regularizers.cardinality import is_limit
from mossp.regularizers.strength import with_strength
from mossp.report.figures import BLUE, ORANGE, given_axes, new_figure, plain
from mossp.result import Result
from mossp.solving.arguments import Arguments, checked
from mossp.solving.solve import solve, solve_next

MOST_CURVES = 40  # entries of x that are drawn, the largest
MOST_LABELS, LABEL_HEIGHT = 12, 0.05  # lines with names; the height of one, as part of the axis


@dataclasses.dataclass
class Path:
    """Answers by strength, in the order in which the strengths were given.

    Attributes
    ----------
    lams : array
        The strengths.
    results : list of Result
        The answer at each of them.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(lambda x: (x - 1.0) @ (x - 1.0), regularizer=mossp.L1(1.0))
    >>> found = mossp.path(problem, [3.0, 1.0], np.zeros(2))
    >>> np.round(found.xs, 6).tolist()
    [[0.0, 0.0], [0.5, 0.5]]
    """

    lams: np.ndarray
    results: list[Result]

    @property
    def xs(self) -> PyTree:
        """x at every strength: the structure of x0 with a leading axis."""
        return jax.tree.map(lambda *leaves: np.stack(leaves), *[r.x for r in self.results])

    @property
    def supports(self) -> np.ndarray:
        """Which entries are not zero: strength x entry of the vector of x."""
        return np.array([Structure.of(r.x).ravel(r.x) != 0 for r in self.results])

    @property
    def nonzeros(self) -> np.ndarray:
        """How many entries are not zero, at every strength."""
        return self.supports.sum(axis=1)

    @property
    def funs(self) -> np.ndarray:
        """The objective at every strength."""
        return np.array([r.fun for r in self.results])

    @property
    def violations(self) -> np.ndarray:
        """The violation of the constraints at every strength."""
        return np.array([r.violation for r in self.results])

    @property
    def certificates(self) -> list[Any]:
        """The certificate at every strength."""
        return [r.certificate for r in self.results]

    @property
    def success(self) -> bool:
        """Whether every certificate holds."""
        return all(r.success for r in self.results)

    def __str__(self) -> str:
        rows = [f"{'lam':>10} {'nonzeros':>8} {'objective':>12} {'violation':>10} {'worst':>8}"]
        for lam, count, r in zip(self.lams, self.nonzeros, self.results, strict=True):
            mark = "" if r.success else f"  {r.status.name}"
            rows.append(
                f"{lam:10.4g} {count:8d} {r.fun:12.6g} {r.violation:10.1e} "
                f"{r.certificate.worst_relative:8.1e}{mark}"
            )
        return "\n".join(rows)

    def plot(
        self,
        ax: Any = None,
        *,
        path: str | os.PathLike[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> Any:
        """Draw the entries of x and their number against lam.

        Parameters
        ----------
        ax : Axes or sequence of Axes, optional
            One for the entries, or two for the entries and their number.
        path : path, optional
            Also save the figure there; the ending decides the format.
        names : sequence of str, optional
            One for each entry of x: the largest lines are labelled by them.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        if ax is not None:
            axes = given_axes(ax, 2)
            figure = axes[0].figure
        else:
            figure = new_figure((9.0, 3.6), shown=path is None)
            axes = [figure.add_subplot(1, 2, i) for i in (1, 2)]
        order = np.argsort(self.lams, kind="stable")
        lams, nonzeros = self.lams[order], self.nonzeros[order]
        vectors = np.array([Structure.of(r.x).ravel(r.x) for r in self.results])[order]
        largest = np.argsort(-np.abs(vectors).max(axis=0))[:MOST_CURVES]
        draws: list[Callable[[Any], None]] = [
            lambda a: a.plot(lams, vectors[:, largest], linewidth=1.2),
            lambda a: a.plot(lams, nonzeros, color=BLUE, marker="o", markersize=3),
        ]
        failed = np.array([not r.success for r in self.results])
        for a, draw, label in zip(axes, draws, ("entries of x", "nonzeros"), strict=False):
            draw(a)
            for lam in self.lams[failed]:
                a.axvline(lam, color=ORANGE, linestyle=":", linewidth=1)
            if (self.lams > 0).all() and self.lams.max() > 10 * self.lams.min():
                a.set_xscale("log")
            a.set_xlabel("lam" + " (dotted: the certificate does not hold)" * bool(failed.any()))
            a.set_ylabel(label)
            plain(a)
        if names is not None:
            label_lines(axes[0], lams, vectors[:, largest], [names[j] for j in largest])
        if path is not None:
            figure.savefig(path)
        return figure


def label_lines(ax: Any, lams: np.ndarray, curves: np.ndarray, names: Sequence[str]) -> None:
    """The names of the largest lines at their left ends, where coefficients are largest.

    Lines that end close to a labelled one stay without, lest the labels cover each other.
    """
    low, high = ax.get_ylim()
    taken: list[float] = []
    for curve, name in zip(curves.T[:MOST_LABELS], names, strict=False):
        end = float(curve[0])
        if end == 0 or any(abs(end - other) < LABEL_HEIGHT * (high - low) for other in taken):
            continue
        taken.append(end)
        ax.annotate(
            short(name, 18), (float(lams[0]), end), xytext=(3, 2), textcoords="offset points",
            fontsize="x-small", parse_math=False,
        )  # fmt: skip


def path(
    problem: Problem,
    lams: Sequence[float] | np.ndarray,
    x0: Any = None,
    *,
    regularizer: Callable[[float], Regularizer] | None = None,
    **settings: Any,
) -> Path:
    """Solve the problem at every strength of its regulariser, from the strongest to the weakest.

    The strengths share one compiled program.

    Parameters
    ----------
    lams : sequence of float
        Values of the `lam` of the problem's regulariser.
    x0 : pytree of arrays, optional
        Where the first one starts: zeros if left out, for a loss of data (X, ...) in as many
        variables as X has columns.
    regularizer : callable, optional
        lam -> regulariser, for one with no `lam` or with several.
    **settings
        Those of `solve`.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 6))
    >>> y = X @ np.array([2.0, -1.0, 0, 0, 0, 0]) + 0.1 * rng.normal(size=300)
    >>> problem = mossp.Problem(mossp.losses.squared, (X, y), mossp.L1(1.0))
    >>> found = mossp.path(problem, [3.0, 1.5, 0.1])
    >>> found.nonzeros.tolist(), found.success
    ([0, 1, 2], True)
    """
    check_problem("path", problem)
    strengths = checked_strengths(lams)
    make = regularizer or (lambda lam: with_strength(problem.regularizer, lam))
    x = start_of(problem) if x0 is None else x0
    results: dict[int, Result] = {}
    following = None
    for i in np.argsort(-strengths, kind="stable").tolist():
        one = with_regularizer(problem, make(float(strengths[i])))
        if following is not None and isinstance(x, Result) and following.suits(one):
            results[i] = solve_next(one, x, following.arguments)
        else:
            results[i] = solve(one, x, **settings)
            following = Following.of(one, results[i], settings)
        x = results[i] if np.isfinite(results[i].fun) else x
    return Path(strengths, [results[i] for i in range(len(strengths))])


class Following:
    """What the strengths of a path share after the first.

    Arguments, and as long as this is held margins, columns and the Hessian at the last point, which
    is where the next strength starts from.
    """

    def __init__(self, problem: Problem, arguments: Arguments) -> None:
        self.arguments, self.kind = arguments, kind_of(problem.regularizer)
        self.linear = linear_loss(arguments.oracles)

    @classmethod
    def of(cls, problem: Problem, first: Result, settings: dict[str, Any]) -> Following | None:
        """None where each strength has to be solved by itself."""
        alone = settings.get("mesh") is not None or is_limit(problem.regularizer)
        if alone or not problem.unchanging:
            return None
        given = {name: value for name, value in settings.items() if name != "mesh"}
        return cls(problem, checked(problem, first, **given))

    def suits(self, problem: Problem) -> bool:
        """Whether a problem differs in numbers of its regulariser alone."""
        return problem.unchanging and bool(kind_of(problem.regularizer) == self.kind)


def kind_of(regularizer: Regularizer) -> Any:
    """What regularisers have in common that differ in their numbers alone."""
    leaves, structure = jax.tree.flatten(regularizer)
    return structure, [np.shape(leaf) for leaf in leaves]


def checked_strengths(lams: Any) -> np.ndarray:
    try:
        strengths = np.array(lams, np.float64)
    except (TypeError, ValueError):  # text, or lists of unequal length
        strengths = np.empty(0)
    good = strengths.ndim == 1 and len(strengths) > 0 and bool(np.isfinite(strengths).all())
    if not good or (strengths < 0).any():
        raise ValueError(f"lams must be a list of numbers >= 0, but {shown(lams)} was given.")
    return strengths


def with_regularizer(problem: Problem, regularizer: Regularizer) -> Problem:
    """The same problem, with the same copy of the data, under another regulariser."""
    changed = object.__new__(type(problem))  # copy.copy would go through a pickle: data made anew
    changed.__dict__.update({**vars(problem), "regularizer": regularizer})
    return changed


def start_of(problem: Problem) -> np.ndarray:
    """Zeros, one a column of the data's first array."""
    columns = problem.source().columns
    if columns is None:
        raise ValueError("The number of variables cannot be told from the data: give x0.")
    return np.zeros(columns)
