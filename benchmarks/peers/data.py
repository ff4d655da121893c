"""The data of the suites, by the functions that the other benchmarks use."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts there import one another

from workload import dataset, random_quadratics, unit_start

__all__ = ["dataset", "quadratics", "unit_start"]


def quadratics(n: int) -> dict[str, np.ndarray]:
    made = random_quadratics(n)
    return {"Q": np.asarray(made.Q), "p": np.asarray(made.a), "r": np.asarray(made.b)}
