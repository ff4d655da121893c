"""`mossp fit`: from a file of data to a model, its scores and a page about it.

request.py     what was asked
rows.py        the rows: what the target holds, which rows are kept for a test
estimator.py   the estimator that the request states
fit.py         all of it in order
decisions.py   the threshold of decisions, and how they turn out
scores.py      what the model is worth
page.py        the page about it
"""
