"""mossp for benchopt's benchmark_logreg_l1: goes into its folder `solvers` as mossp.py.

min_b  sum_i log(1 + exp(-y_i x_i'b)) + lmbd ||b||_1
"""

from typing import ClassVar

from benchopt import BaseSolver, safe_import_context

with safe_import_context() as import_ctx:
    import numpy as np

    import mossp


class Solver(BaseSolver):
    """`mossp.solve` with its defaults; benchopt makes the tolerance smaller and smaller."""

    name = "mossp"
    install_cmd = "conda"
    requirements: ClassVar = ["pip::mossp"]
    sampling_strategy = stop_strategy = "tolerance"
    parameters: ClassVar = {"method": ["auto"]}
    references = ("MoSSP: a momentum-based single-loop stochastic penalty method",)

    def skip(self, X, y, lmbd, **_):
        """An intercept is for the estimators of mossp.sklearn."""
        return (True, "no intercept") if _.get("fit_intercept") else (False, None)

    def set_objective(self, X, y, lmbd, **_):
        """The mean is what mossp minimises: lmbd is divided by the number of rows."""
        self.n = X.shape[1]
        self.problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1(lmbd / len(y)))
        self.run(1e-2)  # compiled before anything is timed

    def run(self, tolerance):
        """From zeros; the last tolerance that makes sense in float64 is 1e-12."""
        tol = max(float(tolerance), 1e-12)
        self.beta = mossp.solve(self.problem, np.zeros(self.n), method=self.method, tol=tol).x

    def get_result(self):
        return {"beta": self.beta}
