"""Positive and unlabelled rows: test error against naive labels and pulearn.

    python benchmarks/pu.py            a table: three sets, 5, 20 and 50 % of the positives labelled

`pulearn` (pip install pulearn) is left out where it is not installed. Every learner sees the same
rows, standardised on the training part; those that take a prior (mossp, nnPU) are given the true
share, of all rows or of the unlabelled ones as they define it. Errors are means over three draws of
rows and labels. The defaults of `PUClassifier` (risk, threshold, how the strength is chosen) were
chosen on 8000 rows of each set, on other draws of the generated one and on sets of other kinds: no
row for testing is one of these. Its nonzeros are those with `regularizer="l1"`, the second column.
Pulearn's trees over features (TAN) are left out, quadratic in them.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from mossp.data import load_data
from mossp.sklearn import PUClassifier

SHARES = (0.05, 0.2, 0.5)
SEEDS = (11, 12, 13)
OURS = ("mossp", "mossp l1")
CHOSEN_ON, TRAIN, TEST = 8000, 5600, 2400  # rows


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
    """Names, and for each a function of the seed: rows to learn from and fresh ones for testing."""
    first = np.random.default_rng(0)  # whose rows the defaults were chosen on
    for name in ("a9a", "phishing"):
        found = load_data(name)
        X = found.X.toarray() if hasattr(found.X, "toarray") else np.asarray(found.X)
        y, order = (np.asarray(found.y) > 0).astype(int), first.permutation(len(found.y))

        def drawn(seed, X=X, y=y, seen=order[:CHOSEN_ON], fresh=order[CHOSEN_ON:]):
            rng = np.random.default_rng(seed)
            fresh = rng.permutation(fresh)
            train = rng.permutation(np.append(seen, fresh[TEST:]))[:TRAIN]
            return X[train], y[train], X[fresh[:TEST]], y[fresh[:TEST]]

        yield name, drawn

    def generated(seed):
        X, y = mushrooms(np.random.default_rng(seed))
        return X[:TRAIN], y[:TRAIN], X[TRAIN:], y[TRAIN:]

    yield "mushrooms-like", generated


def learners(prior, known):
    """By name; `known` positives are labelled."""
    logistic = lambda: LogisticRegression(max_iter=500)  # noqa: E731
    found = {
        "mossp": lambda: PUClassifier(prior=prior),
        "mossp l1": lambda: PUClassifier(prior=prior, regularizer="l1"),
        "naive": logistic,
    }
    try:
        import pulearn
    except ImportError:
        return found
    return found | {
        "elkan-noto": lambda: pulearn.ElkanotoPuClassifier(logistic(), hold_out_ratio=0.2),
        "weighted elkan-noto": lambda: pulearn.WeightedElkanotoPuClassifier(
            logistic(), labeled=known.sum(), unlabeled=(1 - known).sum(), hold_out_ratio=0.2
        ),
        "nnPU": lambda: pulearn.NNPUClassifier(
            (prior - known.mean()) / (1 - known.mean()), random_state=0
        ),
        "naive Bayes": pulearn.PositiveNaiveBayesClassifier,
        "weighted naive Bayes": pulearn.WeightedNaiveBayesClassifier,
        "bagging": lambda: pulearn.BaggingPuClassifier(logistic(), n_estimators=15),
    }


def errors(data, share, seed):
    """The test error of every learner, NaN where a peer fails; nonzeros, certified, CPU seconds."""
    X, y, X_test, y_test = data
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    known = ((y == 1) & (np.random.default_rng([seed, 1]).random(len(y)) < share)).astype(int)
    found, of_ours = {}, []
    for name, make in learners(float(y.mean()), known).items():
        model, began = make(), time.process_time()
        np.random.seed(seed)  # noqa: NPY002  (what pulearn draws from)
        try:
            predicted = np.asarray(model.fit(X, known).predict(X_test))
            found[name] = np.mean((predicted > 0) != (y_test > 0))
        except Exception:
            if name in OURS:
                raise
            found[name] = np.nan
        if name in OURS:
            of_ours.append((model.result_.success, time.process_time() - began))
            nonzeros = np.count_nonzero(model.coef_)
    return found, (nonzeros, *np.mean(of_ours, axis=0))


def main():
    warnings.simplefilter("ignore")
    names = list(learners(0.5, np.zeros(1)))
    print("| set | labelled | " + " | ".join(names) + " | nonzeros | certified | seconds |")
    print("|---|---|" + "---|" * (len(names) + 3))
    wins, cells = {"naive": 0, "pulearn's best": 0}, 0
    for name, drawn in sets():
        data = {seed: drawn(seed) for seed in SEEDS}
        for share in SHARES:
            runs = [errors(data[seed], share, seed) for seed in SEEDS]
            mean = {learner: np.mean([found[learner] for found, _ in runs]) for learner in names}
            nonzeros, certified, seconds = np.mean([ours for _, ours in runs], axis=0)
            print(
                f"| {name} | {share:.0%} | {' | '.join(f'{mean[n]:.4f}' for n in names)} "
                f"| {nonzeros:.0f} | {certified:.0%} | {seconds:.1f} |",
                flush=True,
            )
            cells += 1
            wins["naive"] += mean["mossp"] < mean["naive"]
            peers = [e for n, e in mean.items() if n not in (*OURS, "naive") and not np.isnan(e)]
            wins["pulearn's best"] += bool(peers) and mean["mossp"] < min(peers)
    print()
    for other, count in wins.items():
        print(f"better than {other} in {count} of {cells}")


if __name__ == "__main__":
    main()
