"""`mossp fit`: from a file of data to a model, its scores and a page about it."""

from mossp.fitting.fit import Fitted, Request, fit
from mossp.fitting.page import report

__all__ = ["Fitted", "Request", "fit", "report"]
