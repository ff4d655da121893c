"""A saved model for others to score with.

terms.py   what a score is made of, in the units of the data: an object that JSON holds
sql.py     the same as a query
onnx.py    the same as a graph of ONNX, on features that are encoded already
"""
