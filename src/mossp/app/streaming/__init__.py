"""Files that are large against memory: learnt from, fitted to and predicted block by block.

What `mossp.app.tables` and `mossp.app.features` do to a whole table they do to a block of its rows,
so that a model does not depend on which of the two it was.
"""
