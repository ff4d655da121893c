"""Partial AUC on test rows: PartialAUCClassifier against logistic regression.

    python benchmarks/partial_auc.py [splits]      three ranges, three sets, 1 and 10 % positives

Mean normalised partial AUC over the splits, and seconds of CPU time. (LibAUC's SOPA needs PyTorch
and packages that are not on every machine: it is not compared here.)
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.pu import sets
from mossp.sklearn import PartialAUCClassifier, partial_auc

RANGES = ((0.05, 0.0), (0.1, 0.0), (0.2, 0.05))
SHARES = (0.01, 0.1)
MOST = 4000  # negatives


def imbalanced(X, y, share, rng):
    negatives = rng.permutation(np.flatnonzero(y == 0))[:MOST]
    count = round(share / (1 - share) * len(negatives))
    positives = rng.permutation(np.flatnonzero(y == 1))[: max(count, 8)]
    rows = np.concatenate([negatives, positives])
    return X[rows], y[rows]


def main():
    warnings.simplefilter("ignore")
    splits = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    wins = cells = 0
    for name, X, y in sets():
        for share in SHARES:
            some = imbalanced(X, y, share, np.random.default_rng(2))
            found = {r: ([], [], []) for r in RANGES}
            for split in range(splits):
                A, A_test, b, b_test = train_test_split(
                    *some, test_size=0.5, random_state=split, stratify=some[1]
                )
                scaler = StandardScaler().fit(A)
                A, A_test = scaler.transform(A), scaler.transform(A_test)
                logistic = LogisticRegression(max_iter=500).fit(A, b).decision_function(A_test)
                for high, low in RANGES:
                    began = time.process_time()
                    model = PartialAUCClassifier(high, low, lam=0.01).fit(A, b)
                    seconds = time.process_time() - began
                    ours = partial_auc(b_test, model.decision_function(A_test), high, low)
                    theirs = partial_auc(b_test, logistic, high, low)
                    for each, value in zip(found[high, low], (ours, theirs, seconds), strict=True):
                        each.append(value)
            for (high, low), values in found.items():
                ours, theirs, seconds = (np.mean(v) for v in values)
                cells, wins = cells + 1, wins + (ours >= theirs)
                print(
                    f"{name}, {share:.0%} positives, rates {low:g} to {high:g}: mossp {ours:.4f} "
                    f"({seconds:.1f} s CPU), logistic regression {theirs:.4f}",
                    flush=True,
                )
    print(f"at least as good in {wins} of {cells} cells, means of {splits} splits")


if __name__ == "__main__":
    main()
