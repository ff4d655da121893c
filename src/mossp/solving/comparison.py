"""Several methods on one problem, with the same budget: a table and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mossp.methods import Method
from mossp.problem import Problem, check_problem
from mossp.report.figures import plot
from mossp.result import Result
from mossp.solving.arguments import checked, checked_method
from mossp.solving.solve import solve

HEADER = ("method", "status", "objective", "violation", "residual", "nonzero", "gradients", "s")


@dataclass(frozen=True, repr=False)
class Comparison:
    """What `compare` returns; printed, it is the table.

    Attributes
    ----------
    results : dict of Result
        By method, in the order in which they were asked for.
    refused : dict of str
        By method, why it cannot take the problem.
    """

    results: Mapping[str, Result]
    refused: Mapping[str, str]

    def plot(self, ax: Any = None, *, path: Any = None) -> Any:
        """The runs side by side: `mossp.plot` of the results, with the methods as labels."""
        return plot(list(self.results.values()), ax, path=path, labels=list(self.results))

    def __repr__(self) -> str:
        rows: list[Sequence[str]] = [HEADER]
        for name, r in self.results.items():
            nonzero = sum(int(np.count_nonzero(leaf)) for leaf in jax.tree.leaves(r.x))
            rows.append((
                name, r.status.name, f"{r.fun:.8g}", f"{r.violation:.1e}",
                f"{r.certificate.worst_relative:.1e}", str(nonzero), f"{r.gradients:,}",
                f"{r.seconds:.2f}",
            ))  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        left = 2  # columns of text
        lines = [
            "  ".join(
                cell.ljust(w) if j < left else cell.rjust(w)
                for j, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.refused.items())])


def compare(
    problem: Problem, x0: Any, methods: Sequence[str | Method] = ("auto", "mossp-r", "mossp-p"),
    **settings: Any,
) -> Comparison:  # fmt: skip
    """Solve a problem by several methods, with the same start, seed and budget.

    Parameters
    ----------
    problem, x0
        As for `solve`.
    methods : sequence of str or Method
        Those to compare; one that cannot take the problem is left out, with its reason.
    **settings
        Those of `solve`, alike for all.

    Returns
    -------
    Comparison
        Printed, it is a table; `plot()` draws the runs; `results` has them by method.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0] + x[1], equality=lambda x: x @ x - 2.0)
    >>> found = mossp.compare(problem, [1.0, 0.0], ["auto", "mlalm"], steps=2000, tol=1e-4)
    >>> list(found.results), found.results["auto"].success
    (['auto', 'mlalm'], True)
    """
    check_problem("compare", problem)
    if isinstance(methods, (str, Method)) or not len(methods):
        raise TypeError(f"methods must be a list of methods, but {methods!r} was given.")
    names = ["auto" if m == "auto" else checked_method(m)[1] for m in methods]
    if len(set(names)) < len(names):
        names = [f"{name} ({k + 1})" for k, name in enumerate(names)]
    results: dict[str, Result] = {}
    refused: dict[str, str] = {}
    for name, method in zip(names, methods, strict=True):
        try:
            results[name] = solve(problem, x0, method=method, **settings)
        except ValueError as error:
            if not _about_method(problem, x0, method, settings):
                raise
            refused[name] = str(error)
    return Comparison(results, refused)


def _about_method(problem: Problem, x0: Any, method: Any, settings: dict[str, Any]) -> bool:
    """Whether it is the method that cannot take the problem, and not what is wrong for all."""
    try:
        checked(problem, x0, **settings)
    except (TypeError, ValueError):
        return False
    return bool(method != "auto")
