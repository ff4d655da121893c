"""The constants that the paper's Assumptions 2.1, 2.2 and 3.1 name."""

from __future__ import annotations

from typing import NamedTuple

from mossp._base.types import AnyNumber

# On ||J||^2 in a stable step 1 / (L + 1.3 rho ||J||^2 + ...): power iteration finds it from below,
# and it may grow before it is measured again.
JACOBIAN_MARGIN = 1.3


class Constants(NamedTuple):
    """Estimates near x0; `L_tilde(rho0)` is the paper's L~ = L_f / rho0 + G_c^2 + C L_c."""

    L_f: AnyNumber  # smoothness of f
    L_batch: AnyNumber  # largest smoothness of a mini-batch's loss
    sigma: AnyNumber  # standard deviation of a mini-batch gradient
    G: AnyNumber  # ||grad f||
    G_c: AnyNumber  # ||J||, the spectral norm
    C: AnyNumber  # ||c||
    L_c: AnyNumber  # smoothness of c

    def L_tilde(self, rho0: float) -> float:
        return self.L_f / rho0 + self.G_c**2 + self.C * self.L_c

    def L_max(self, rho0: float) -> float:
        return max(self.L_f, self.L_tilde(rho0), self.least_curvature)

    @property
    def least_curvature(self) -> float:
        """A linear loss without constraints has no curvature, but needs a finite step."""
        return 0.1 * self.G or 1.0
