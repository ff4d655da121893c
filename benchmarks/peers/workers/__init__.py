"""One script a peer: `python -m benchmarks.peers.workers.cooper problem.npz job.json answer.npz`.

Each needs NumPy and the peer, and nothing of mossp (but `ours`). `job` is what they share.
"""
