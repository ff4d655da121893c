"""Ours and others' on the same problems, starts and merit: `make compare`, SUITE=a for one.

Nothing that a peer's worker imports imports mossp: it runs in an environment that has the peer
alone.
"""
