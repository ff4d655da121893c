"""What `mossp fit` was asked: its fields are the options of the command."""

from __future__ import annotations

import dataclasses

from mossp.app import options


@dataclasses.dataclass(frozen=True)
class Request:
    """The options of `mossp fit` that decide the model."""

    train: options.TrainFile
    target: options.Target = None
    loss: options.Loss = None
    objective: options.Objective = None
    prior: options.Prior = None
    max_fpr: options.MaxFpr = None
    min_fpr: options.MinFpr = None
    offset: options.Offset = None
    regularizer: options.Regularizer = None  # that of the estimator
    max_features: options.MaxFeatures = None
    choose: options.Choose = "best"
    scoring: options.Scoring = None
    threshold: options.Threshold = None
    equality: options.Equality = None
    inequality: options.Inequality = None
    units: options.Units = "standardised"
    nonnegative: options.Nonnegative = False
    no_intercept: options.NoIntercept = False
    balanced: options.Balanced = False
    inference: options.Inference = False
    rate: options.Rate = None
    rates_margin: options.RatesMargin = None
    sensitive: options.Sensitive = None
    parity: options.Parity = None
    opportunity: options.Opportunity = None
    id: options.Id = None
    missing: options.Missing = "refuse"
    dates: options.Dates = None
    cyclic: options.Cyclic = None
    exclude: options.Exclude = None
    no_standardize: options.NoStandardize = False
    test: options.TestShare = 0.2
    test_file: options.TestFile = None
    format: options.Format = None
    stream: options.Stream = None
    checkpoint: options.Checkpoint = None
    method: options.Method = "auto"
    steps: options.Steps = None
    batch_size: options.BatchSize = None
    starts: options.Starts = 1
    seed: options.SplitSeed = 0
    tol: options.Tol = None

    @property
    def equalities(self) -> list[str]:
        """Texts of equalities, as they were given."""
        return list(self.equality or ())

    @property
    def inequalities(self) -> list[str]:
        """Texts of inequalities, as they were given."""
        return list(self.inequality or ())

    @property
    def rates(self) -> list[str]:
        """Texts of bounds on rates, as they were given."""
        return list(self.rate or ())

    @property
    def excluded(self) -> list[str]:
        """Columns that are no features: those left out, ids, and the protected attribute."""
        return [*(self.exclude or ()), *self.ids, *([self.sensitive] if self.sensitive else [])]

    @property
    def ids(self) -> list[str]:
        """Columns that are handed through to predictions."""
        return list(self.id or ())

    @property
    def cycles(self) -> dict[str, tuple[str, ...]]:
        """Of columns of dates, the cycles whose positions are features: "joined:year,week"."""
        found = {}
        for text in self.cyclic or ():
            name, colon, listed = text.rpartition(":")
            parts = [part.strip() for part in listed.split(",") if part.strip()]
            if not (name and colon and parts):
                raise ValueError(
                    f"--cyclic {text} must name a column and its cycles, as in joined:year,week."
                )
            found[name.strip()] = tuple(parts)
        return found

    @property
    def scorer(self) -> str | None:
        """The name that scikit-learn has for the scoring: "log loss" is "neg_log_loss"."""
        if self.scoring is None:
            return None
        from sklearn.metrics import get_scorer_names

        name = self.scoring.strip().lower().replace(" ", "_").replace("-", "_")
        return f"neg_{name}" if f"neg_{name}" in get_scorer_names() else name

    def check(self) -> None:
        """Raise ValueError where an option has a value that it cannot have."""
        for option, given, known in (
            ("--missing", self.missing, ("refuse", "impute", "drop")),
            ("--units", self.units, ("standardised", "data")),
        ):
            if given not in known:
                raise ValueError(f"{option} must be one of {', '.join(known)}, but it is {given}.")
        from mossp.app.fitting.decisions import checked_threshold
        from mossp.sklearn.choosing import BIC

        if self.threshold is not None:
            checked_threshold(self.threshold)
            if self.rates:
                raise ValueError("--rate chooses its own threshold: leave --threshold out.")
        if self.scoring is not None and not (self.chooses_strength and self.choose != BIC):
            raise ValueError(
                "--scoring is for a strength that folds choose: give --regularizer without a "
                "number, and no --choose bic."
            )
        _ = self.cycles  # which says what is wrong with one

    @property
    def chooses_strength(self) -> bool:
        """Whether the strength of the regulariser is left open."""
        if self.objective is not None or self.max_features is not None:
            return False  # folds have no labels to score with, or a limit is in its place
        name, colon, _ = (self.regularizer or "").partition(":")
        return not colon and name != "none"
