"""Partial AUC on test rows: PartialAUCClassifier against logistic regression and LibAUC's SOPA.

    python benchmarks/partial_auc.py [set ...]      three ranges, three sets, 1 and 10 % positives

Mean partial AUC over five splits, divided by the length of its range, and seconds of CPU time.
Every learner sees the same rows, standardised on the training half. PartialAUCClassifier is left at
its defaults, a surrogate and a ridge whose strength were chosen on other rows (generated with
sparse, dense and correlated truths and with categories, scikit-learn's digits and breast cancer,
australian, and those of a9a that no split tests on).

SOPA (pip install --no-deps libauc; left out where it is missing) fits a linear model with LibAUC's
squared hinge in batches of 32 positives and 32 negatives, 2000 steps, at two learning rates, of
which the one counts that is better on the test rows of a cell. It has no smallest rate: for 0.05 to
0.2 it is asked for up to 0.2.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.pu import mushrooms
from mossp.data import load_data
from mossp.sklearn import PartialAUCClassifier, partial_auc

RANGES = ((0.05, 0.0), (0.1, 0.0), (0.2, 0.05))
SHARES = (0.01, 0.1)
MOST, SPLITS = 8000, 5  # negatives
RATES, STEPS, HALF = (1e-3, 1e-2), 2000, 32  # of SOPA


def sets():
    """Names, and for each a function of the seed: all rows."""
    for name in ("a9a", "phishing"):
        found = load_data(name)
        X = found.X.toarray() if hasattr(found.X, "toarray") else np.asarray(found.X)
        y = (np.asarray(found.y) > 0).astype(int)
        yield name, lambda _, X=X, y=y: (X, y)
    yield "mushrooms-like", lambda seed: mushrooms(np.random.default_rng(seed))


def imbalanced(X, y, share, rng):
    negatives = rng.permutation(np.flatnonzero(y == 0))[:MOST]
    count = round(share / (1 - share) * len(negatives))
    rows = np.concatenate([negatives, rng.permutation(np.flatnonzero(y == 1))[:count]])
    return X[rows], y[rows]


def mossp_scores(A, b, A_test, high, low):
    return PartialAUCClassifier(high, low).fit(A, b).decision_function(A_test)


def logistic_scores(A, b, A_test, high, low):
    return LogisticRegression(max_iter=500).fit(A, b).decision_function(A_test)


def sopa_scores(rate):
    import torch
    from libauc.losses.auc import pAUC_CVaR_Loss
    from libauc.optimizers import SOPA

    def scores(A, b, A_test, high, low):
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        positive, negative = np.flatnonzero(b == 1), np.flatnonzero(b == 0)
        rows = torch.tensor(np.concatenate([A[positive], A[negative]]), dtype=torch.float32)
        model = torch.nn.Linear(A.shape[1], 1)
        loss = pAUC_CVaR_Loss(len(b), len(positive), beta=high)
        optimizer = SOPA(model.parameters(), loss_fn=loss, mode="adam", lr=rate)
        labels = torch.cat([torch.ones(HALF, 1), torch.zeros(HALF, 1)])
        for _ in range(STEPS):
            places = np.append(
                rng.integers(len(positive), size=HALF),
                len(positive) + rng.integers(len(negative), size=HALF),
            )
            value = loss(model(rows[places]), labels, torch.tensor(places))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        return A_test @ model.weight.detach().numpy()[0]

    return scores


def learners():
    found = {"mossp": mossp_scores, "logistic regression": logistic_scores}
    try:
        return found | {f"SOPA {rate:g}": sopa_scores(rate) for rate in RATES}
    except ImportError:
        return found


def main():
    warnings.simplefilter("ignore")
    fits = learners()
    names = list(fits)
    print("| set | positives | rates | " + " | ".join(f"{n} (s)" for n in names) + " |")
    print("|---|---|---|" + "---|" * len(names))
    wins = {"logistic regression": 0, "SOPA": 0, "both": 0}
    cells = 0
    for name, drawn in sets():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        for share in SHARES:
            found = {r: {n: [] for n in names} for r in RANGES}
            for split in range(SPLITS):
                some = imbalanced(*drawn(split), share, np.random.default_rng([2, split]))
                A, A_test, b, b_test = train_test_split(
                    *some, test_size=0.5, random_state=split, stratify=some[1]
                )
                scaler = StandardScaler().fit(A)
                A, A_test = scaler.transform(A), scaler.transform(A_test)
                for (high, low), values in found.items():
                    for learner, fit in fits.items():
                        began = time.process_time()
                        scores = fit(A, b, A_test, high, low)
                        seconds = time.process_time() - began
                        values[learner].append((partial_auc(b_test, scores, high, low), seconds))
            for (high, low), values in found.items():
                mean = {n: np.mean(v, axis=0) for n, v in values.items()}
                print(
                    f"| {name} | {share:.0%} | {low:g} to {high:g} | "
                    + " | ".join(f"{area:.4f} ({seconds:.1f})" for area, seconds in mean.values())
                    + " |",
                    flush=True,
                )
                ours, logistic = mean["mossp"][0], mean["logistic regression"][0]
                sopa = max((v[0] for n, v in mean.items() if n.startswith("SOPA")), default=-1)
                cells += 1
                wins["logistic regression"] += ours >= logistic
                wins["SOPA"] += ours >= sopa
                wins["both"] += ours >= max(logistic, sopa)
    print()
    compared = wins if len(fits) > 2 else ("logistic regression",)  # SOPA may be missing
    for other in compared:
        count = wins[other]
        print(f"at least as good as {other} in {count} of {cells} cells, means of {SPLITS} splits")


if __name__ == "__main__":
    main()
