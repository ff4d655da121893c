"""Ours and others' on the same problems, starts and merit: `make compare`, or SUITE=a for one suite.

Nothing here imports mossp but `suites/`, `scoring.py` and the worker of ours: a peer's worker runs in
an environment that has the peer alone.
"""
