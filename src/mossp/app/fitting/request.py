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
    regularizer: options.Regularizer = "l1"
    choose: options.Choose = "best"
    equality: options.Equality = None
    inequality: options.Inequality = None
    nonnegative: options.Nonnegative = False
    no_intercept: options.NoIntercept = False
    balanced: options.Balanced = False
    rate: options.Rate = None
    rates_margin: options.RatesMargin = None
    sensitive: options.Sensitive = None
    parity: options.Parity = None
    opportunity: options.Opportunity = None
    exclude: options.Exclude = None
    no_standardize: options.NoStandardize = False
    test: options.TestShare = 0.2
    test_file: options.TestFile = None
    format: options.Format = None
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
        """Columns that are no features: those left out, and the protected attribute."""
        return [*(self.exclude or ()), *([self.sensitive] if self.sensitive else [])]

    @property
    def chooses_strength(self) -> bool:
        """Whether the strength of the regulariser is left open."""
        if self.objective is not None:  # folds have no labels to score with, or another measure
            return False
        return ":" not in self.regularizer and self.regularizer != "none"
