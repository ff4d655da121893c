"""The paper's tables: (mean, std) of objective and violation.

Section 4, Table 2 (sphere; the paper chose lam from {0.005, 0.05, 0.1} and does not say which) and
Appendix D.3 (20 quadratic equalities, lam = 0.01).
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    objective: tuple[float, float]
    violation: tuple[float, float]


SPHERE = {
    ("a9a", "MoSSP-P"): Published((0.5901, 4.2e-5), (1.53e-3, 1.24e-5)),
    ("a9a", "SPDC-P"): Published((0.5917, 1.9e-4), (3.23e-2, 1.65e-5)),
    ("a9a", "SALM-P"): Published((0.5917, 1.17e-4), (1.30e-2, 2.52e-4)),
    ("phishing", "MoSSP-P"): Published((0.6045, 1.6e-5), (3.40e-3, 9.2e-6)),
    ("phishing", "SPDC-P"): Published((0.6051, 4.8e-5), (3.66e-2, 5.73e-5)),
    ("phishing", "SALM-P"): Published((0.6047, 1.0e-6), (1.21e-2, 1.52e-4)),
    ("australian", "MoSSP-P"): Published((0.6239, 3.6e-5), (7.14e-3, 8.65e-5)),
    ("australian", "SPDC-P"): Published((0.6265, 6.74e-4), (1.95e-3, 2.92e-5)),
    ("australian", "SALM-P"): Published((0.6241, 1.3e-5), (2.19e-2, 5.11e-4)),
    ("a9a", "MoSSP-R"): Published((0.5809, 3.8e-4), (1.03e-3, 1.24e-5)),
    ("a9a", "SPDC-R"): Published((0.5921, 2.14e-4), (3.23e-2, 7.35e-6)),
    ("a9a", "SALM-R"): Published((0.6303, 4.23e-3), (1.30e-2, 1.17e-4)),
    ("phishing", "MoSSP-R"): Published((0.6045, 1.1e-5), (4.63e-3, 7.12e-6)),
    ("phishing", "SPDC-R"): Published((0.6052, 4.7e-5), (1.10e-1, 5.68e-4)),
    ("phishing", "SALM-R"): Published((0.6054, 9.7e-5), (7.42e-3, 2.88e-4)),
    ("australian", "MoSSP-R"): Published((0.6240, 6.8e-5), (6.88e-3, 1.03e-4)),
    ("australian", "SPDC-R"): Published((0.6265, 6.74e-4), (1.94e-3, 2.13e-5)),
    ("australian", "SALM-R"): Published((0.6243, 1.5e-5), (1.92e-2, 4.86e-4)),
}

QUADRATICS = {
    ("a9a", "MoSSP-P"): Published((0.5811, 1.15e-5), (9.93e-3, 8.62e-5)),
    ("a9a", "SPDC-P"): Published((0.6017, 2.40e-5), (2.27e-2, 5.56e-5)),
    ("a9a", "SALM-P"): Published((0.5914, 2.51e-4), (1.90e-2, 2.46e-4)),
    ("phishing", "MoSSP-P"): Published((0.4951, 9.20e-5), (9.20e-3, 2.14e-5)),
    ("phishing", "SPDC-P"): Published((0.5294, 7.07e-5), (2.40e-2, 5.37e-5)),
    ("phishing", "SALM-P"): Published((0.5067, 9.16e-5), (1.22e-2, 1.07e-4)),
    ("a9a", "MoSSP-R"): Published((0.5911, 1.11e-6), (4.07e-3, 3.72e-5)),
    ("a9a", "SPDC-R"): Published((0.5930, 3.53e-5), (1.79e-2, 4.05e-5)),
    ("a9a", "SALM-R"): Published((0.7085, 9.04e-6), (1.70e-2, 1.16e-4)),
    ("phishing", "MoSSP-R"): Published((0.5063, 1.04e-6), (9.93e-3, 2.58e-5)),
    ("phishing", "SPDC-R"): Published((0.5085, 1.27e-4), (1.94e-2, 2.42e-5)),
    ("phishing", "SALM-R"): Published((0.7030, 3.36e-6), (3.27e-3, 1.42e-5)),
}

PUBLISHED = {"sphere": SPHERE, "quadratics": QUADRATICS}
