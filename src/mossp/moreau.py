"""Moreau envelopes, their difference, and the potential function of the paper.

M_{mu phi}(z) = min_x phi(x) + |x - z|^2 / (2 mu)             attained at prox_{mu phi}(z)
grad M_{mu phi}(z) = (z - prox_{mu phi}(z)) / mu
Psi_mu = M_{mu phi} - M_{mu g}                                smooths Psi = phi - g
L_{rho,mu}(x, z) = Q_rho(x) + h(x) + |x - z|^2 / (2 mu) - M_{mu g}(z)
"""

from __future__ import annotations

from collections.abc import Callable

from mossp._base.types import AnyNumber, AnyVector
from mossp.regularizers.base import Regularizer
from mossp.regularizers.prox import aligned

Prox = Callable[[AnyVector, AnyNumber], AnyVector]


def envelope(
    phi: Callable[[AnyVector], AnyNumber], prox: Prox, z: AnyVector, mu: AnyNumber
) -> AnyNumber:
    """M_{mu phi}(z), at most phi(z).

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> reg = L1(1.0)
    >>> float(envelope(reg.h, reg.prox_h, np.array([3.0]), 1.0))   # the Huber function
    2.5
    """
    p = prox(z, mu)
    return phi(p) + _half_square(p, z) / mu


def envelope_gradient(prox: Prox, z: AnyVector, mu: AnyNumber) -> AnyVector:
    """The gradient of M_{mu phi} at z, (z - prox_{mu phi}(z)) / mu.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> envelope_gradient(L1(1.0).prox_h, np.array([3.0, -0.5]), 1.0)
    array([ 1. , -0.5])
    """
    return (z - prox(z, mu)) / mu


def difference_of_envelopes(reg: Regularizer, z: AnyVector, mu: AnyNumber) -> AnyNumber:
    """Psi_mu(z) = M_{mu h}(z) - M_{mu g}(z), a smooth function with the minima of h - g.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1MinusL2
    >>> float(difference_of_envelopes(L1MinusL2(1.0), np.array([0.0, 7.0]), 0.5))
    0.0
    """
    return envelope(reg.h, reg.prox_h, z, mu) - envelope(reg.g, reg.prox_g, z, mu)


def difference_gradient(reg: Regularizer, z: AnyVector, mu: AnyNumber) -> AnyVector:
    """The gradient of Psi_mu at z, (prox_{mu g}(z) - prox_{mu h}(z)) / mu.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1MinusL2
    >>> difference_gradient(L1MinusL2(1.0), np.array([3.0, 4.0]), 1.0)
    array([0.4, 0.2])
    """
    return (reg.prox_g(z, mu) - reg.prox_h(z, mu)) / mu


def difference_lipschitz(mu: float, m: float = 0.0) -> float:
    """The Lipschitz constant (2 - mu m) / (mu - mu^2 m) of grad Psi_mu, for 0 < mu < 1/m.

    Parameters
    ----------
    mu : float
        The smoothing.
    m : float
        The weak convexity of phi, at least 0: 0 for phi = h, that of f for phi = f + h.

    Examples
    --------
    >>> difference_lipschitz(0.5), difference_lipschitz(0.5, m=1.0)
    (4.0, 6.0)
    """
    if not (mu > 0 and mu * m < 1):
        raise ValueError(f"mu must lie between 0 and 1/m, but mu = {mu} and m = {m} were given.")
    return (2 - mu * m) / (mu - mu**2 * m)


def difference_bounds(reg: Regularizer, z: AnyVector, mu: AnyNumber) -> tuple[AnyNumber, AnyNumber]:
    """Psi(prox_{mu h}(z)) <= Psi_mu(z) <= Psi(prox_{mu g}(z)), the two outer values.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import MCP
    >>> reg, z = MCP(1.0), np.array([0.5, -2.0])
    >>> low, high = difference_bounds(reg, z, 0.5)
    >>> bool(low <= difference_of_envelopes(reg, z, 0.5) <= high)
    True
    """
    return reg(reg.prox_h(z, mu)), reg(reg.prox_g(z, mu))


def potential(
    Q: AnyNumber, reg: Regularizer, x: AnyVector, z: AnyVector, mu: AnyNumber
) -> AnyNumber:
    """L_{rho,mu}(x, z) = Q + h(x) + |x - z|^2 / (2 mu) - M_{mu g}(z), with Q = Q_rho(x).

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> float(potential(1.0, L1(1.0), np.array([2.0]), np.array([3.0]), 0.5))
    4.0
    """
    return Q + reg.h(x) + _half_square(x, z) / mu - envelope(reg.g, reg.prox_g, z, mu)


def potential_lower_bound(F_star: float, G: float, mu: AnyNumber) -> AnyNumber:
    """F* - G^2 mu / 2 <= L_{rho,mu}(x, z) for all x, z, if every subgradient of g has |.| <= G.

    Examples
    --------
    >>> potential_lower_bound(1.0, G=2.0, mu=0.5)
    0.0
    """
    return F_star - G**2 * mu / 2


def _half_square(x: AnyVector, z: AnyVector) -> AnyNumber:
    xp, x, z = aligned(x, z)
    return xp.sum((x - z) ** 2) / 2
