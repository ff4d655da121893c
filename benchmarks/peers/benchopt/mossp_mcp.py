"""mossp for benchopt's benchmark_mcp: goes into its folder `solvers` as mossp.py.

min_b  ||y - X b||^2 / (2 N) + sum_j MCP(b_j; lmbd, gamma)
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

    def set_objective(self, X, y, lmbd, gamma):
        """mossp's squared loss is the mean of (a'b - y)^2 / 2, its MCP the same as theirs."""
        self.n = X.shape[1]
        self.problem = mossp.Problem(mossp.losses.squared, (X, y), mossp.MCP(lmbd, gamma))
        self.run(1e-2)  # compiled before anything is timed

    def run(self, tolerance):
        """From zeros; the last tolerance that makes sense in float64 is 1e-12."""
        tol = max(float(tolerance), 1e-12)
        self.beta = mossp.solve(self.problem, np.zeros(self.n), method=self.method, tol=tol).x

    def get_result(self):
        return {"beta": self.beta}
