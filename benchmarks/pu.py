"""Positive and unlabelled rows: test error against naive labels and pulearn.

    python benchmarks/pu.py            a table: three sets, 5, 20 and 50 % of the positives labelled

`pulearn` (pip install pulearn) is left out where it is not installed. Every learner sees the same
rows, standardised on the training part; those that take a prior are given the true share.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from mossp.data import load_data
from mossp.sklearn import PUClassifier

SHARES = (0.05, 0.2, 0.5)
MOST = 8000  # rows of a set, drawn at random


def mushrooms(rng):
    """Like mushrooms: indicator columns of categories, nearly separable classes."""
    y = rng.random(8000) < 0.48
    columns = []
    for _ in range(20):
        levels = rng.integers(2, 8)
        share = rng.dirichlet(np.full(levels, 1.0), size=2)
        choice = [rng.choice(levels, p=share[int(k)]) for k in y]
        columns.append(np.eye(levels)[choice])
    return np.concatenate(columns, axis=1), y.astype(int)


def sets():
    rng = np.random.default_rng(0)
    for name in ("a9a", "phishing"):
        found = load_data(name)
        rows = rng.permutation(len(found.y))[:MOST]
        X = found.X[rows]
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        yield name, X, (np.asarray(found.y)[rows] > 0).astype(int)
    yield "mushrooms-like", *mushrooms(rng)


def peers(prior):
    try:
        import pulearn
    except ImportError:
        return {}
    found = {
        "elkan-noto": lambda: pulearn.ElkanotoPuClassifier(
            LogisticRegression(max_iter=500), hold_out_ratio=0.2
        ),
        "weighted elkan-noto": lambda: pulearn.WeightedElkanotoPuClassifier(
            LogisticRegression(max_iter=500), labeled=1, unlabeled=1, hold_out_ratio=0.2
        ),
        "bagging": lambda: pulearn.BaggingPuClassifier(
            LogisticRegression(max_iter=500), n_estimators=15
        ),
    }
    return found


def error(model, X, s, X_test, y_test):
    began = time.process_time()
    predicted = np.asarray(model.fit(X, s).predict(X_test))
    return np.mean((predicted > 0) != (y_test > 0)), time.process_time() - began


def main():
    warnings.simplefilter("ignore")
    wins = {"naive": 0, "pulearn's best": 0}
    cells = 0
    for name, X, y in sets():
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
        scaler = StandardScaler().fit(X)
        X, X_test = scaler.transform(X), scaler.transform(X_test)
        full = error(LogisticRegression(max_iter=500), X, y, X_test, y_test)[0]
        print(f"{name}: {X.shape[0]} rows, {X.shape[1]} features, all labels known {full:.4f}")
        for share in SHARES:
            rng = np.random.default_rng(1)
            s = ((y == 1) & (rng.random(len(y)) < share)).astype(int)
            ours = PUClassifier(prior=float(y.mean()))
            e, seconds = error(ours, X, s, X_test, y_test)
            naive = error(LogisticRegression(max_iter=500), X, s, X_test, y_test)[0]
            line = f"  {share:4.0%} labelled ({s.sum()}): mossp {e:.4f} "
            line += f"({np.count_nonzero(ours.coef_)} nonzeros, {seconds:.1f} s CPU, "
            line += f"{'certified' if ours.result_.success else ours.result_.status.name}), "
            line += f"naive {naive:.4f}"
            others = {}
            for peer, make in peers(float(y.mean())).items():
                try:
                    others[peer] = error(make(), X, s, X_test, y_test)[0]
                except Exception as problem:  # a peer's own
                    line += f", {peer} failed ({type(problem).__name__})"
            line += "".join(f", {peer} {found:.4f}" for peer, found in others.items())
            print(line, flush=True)
            cells += 1
            wins["naive"] += e < naive
            wins["pulearn's best"] += bool(others) and e < min(others.values())
    for other, count in wins.items():
        print(f"better than {other} in {count} of {cells}")


if __name__ == "__main__":
    main()
