"""How columns of a table become the columns of a matrix: learnt once, applied again.

features.py   all of it: columns, what is filled in, centres and scales
learning.py   what columns hold, and what stands for values that are missing
levels.py     text, one feature a level
dates.py      dates and times, as numbers of stated units and as positions in a year, week or day
"""

from mossp.app.features.features import Features

__all__ = ["Features"]
