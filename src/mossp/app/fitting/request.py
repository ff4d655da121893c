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
    offset: options.Offset = None
    regularizer: options.Regularizer = "l1"
    choose: options.Choose = "best"
    equality: options.Equality = None
    inequality: options.Inequality = None
    units: options.Units = "standardised"
    nonnegative: options.Nonnegative = False
    no_intercept: options.NoIntercept = False
    balanced: options.Balanced = False
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

    def check(self) -> None:
        """Raise ValueError where an option has a value that it cannot have."""
        for option, given, known in (
            ("--missing", self.missing, ("refuse", "impute", "drop")),
            ("--units", self.units, ("standardised", "data")),
        ):
            if given not in known:
                raise ValueError(f"{option} must be one of {', '.join(known)}, but it is {given}.")
        _ = self.cycles  # which says what is wrong with one

    @property
    def chooses_strength(self) -> bool:
        """Whether the strength of the regulariser is left open."""
        return ":" not in self.regularizer and self.regularizer != "none"
