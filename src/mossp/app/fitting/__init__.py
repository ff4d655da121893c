"""`mossp fit`: from a file of data to a model, its scores and a page about it."""

from mossp.app.fitting.fit import Fitted, Request, fit
from mossp.app.fitting.page import report

__all__ = ["Fitted", "Request", "fit", "report"]
