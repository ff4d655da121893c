"""Rates of a classifier's decisions, and bounds on them: what MoSSPClassifier(rates=[...]) takes.

`fpr() <= 0.05` and "fpr <= 0.05" are the same bound. `selection`, `tpr`, `fpr`, `tnr`, `fnr`,
`precision`, `accuracy` and `mean_loss` are over all rows, or over a group: `tpr(sex="F") >= 0.8`,
"tpr[sex=F] >= 0.8". Sums, differences and multiples of them can be bounded, and absolute values
from above; precision only alone. Of two classes the second is the one decided for, as with
`predict`; with more than two a rate names its class, `tpr(class_="virginica")`,
"tpr[virginica] >= 0.9", and it is of that class against the rest.
"""

from mossp.rates.algebra import Bound, Rate
from mossp.rates.names import (
    accuracy,
    fnr,
    fpr,
    mean_loss,
    precision,
    selection,
    tnr,
    tpr,
)
from mossp.rates.text import RateError, parse

__all__ = [
    "Bound",
    "Rate",
    "RateError",
    "accuracy",
    "fnr",
    "fpr",
    "mean_loss",
    "parse",
    "precision",
    "selection",
    "tnr",
    "tpr",
]
