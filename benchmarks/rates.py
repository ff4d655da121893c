"""The orders of the paper's four results, measured: what `mossp reproduce rates` runs.

python benchmarks/rates.py
"""

from __future__ import annotations

from mossp.experiments import rates

BOUNDS = {"Theorem 3.1": -0.4, "Theorem 3.2": -0.6}


def main() -> None:
    for setting in rates.SETTINGS:
        seen = rates.measure(setting, tuple(range(9, 17)), replicas=64, seed=0)
        head = "  ".join(f"{'E' + name:>13}" for name in rates.RESIDUALS)
        print(f"{setting.result} ({setting.letter}), ||x|| <= {seen['largest']:.3f}")
        print(f"         K  {head}")
        for K, row in zip(seen["K"], seen["means"], strict=True):
            print(f"  {K:8d}  " + "  ".join(f"{value:13.3e}" for value in row))
        bound = BOUNDS.get(setting.result)
        for name, (middle, low, high) in zip(rates.RESIDUALS, seen["slopes"], strict=True):
            note = "" if bound is None else f", bound {bound}"
            short = "   SHORT" if bound is not None and middle > bound else ""
            print(
                f"  slope of E{name:<11} {middle:6.2f}  [{low:.2f}, {high:.2f}]   "
                f"theory {setting.order:.2f}{note}{short}"
            )


if __name__ == "__main__":
    main()
