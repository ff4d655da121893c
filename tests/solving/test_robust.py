"""Some of the problems of benchmarks/robust.py: solved, and nothing claimed that is not so."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import jax
import pytest

pytestmark = pytest.mark.slow


FILE = Path(__file__).parents[2] / "benchmarks" / "robust.py"
spec = importlib.util.spec_from_file_location("robust", FILE)
assert spec is not None and spec.loader is not None
robust = importlib.util.module_from_spec(spec)
sys.modules["robust"] = robust
spec.loader.exec_module(robust)

FAMILIES = ["product_five", "linear_under_exponentials", "logarithms", "linear_over_logarithms"]


@pytest.mark.parametrize("name", FAMILIES)
def test_five_of_a_family(name):
    with jax.enable_x64(True):
        for case in robust.cases(5, [name]):
            result = robust.with_mossp(case)
            assert robust.solved(robust.oracles(case), result.x, case), (
                case.number,
                result.message,
            )


def test_the_check_finds_what_is_wrong():
    with jax.enable_x64(True):
        case = robust.cases(1, ["product_five"])[0]
        oracles, result = robust.oracles(case), robust.with_mossp(case)
        assert robust.solved(oracles, result.x, case)
        assert not robust.solved(oracles, case.x0, case)
        assert not robust.solved(oracles, result.x * 1.001, case)
        assert not robust.solved(oracles, -result.x, case)


def test_no_success_is_claimed_at_infinity():
    """There the constraints' gradients vanish, and huge multipliers make any point critical."""
    with jax.enable_x64(True):
        case = robust.cases(14, ["ratios_in_constraints"])[13]
        result = robust.with_mossp(case)
        assert robust.solved(robust.oracles(case), result.x, case) or not result.success
