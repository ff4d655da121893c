"""Training in several processes."""

from __future__ import annotations

import datetime
import itertools
import socket

import numpy as np
import pytest
import torch

import mossp.torch as ours
from mossp.torch import Expected, MoSSP
from tests.torch.models import ROWS, Model, X, Y, closure_of, constrained, sphere

pytestmark = pytest.mark.slow


def trained(wrap, part):
    """Where training ends, by momentum and concave part, on a part of every mini-batch."""
    ends = {}
    for momentum, concave in itertools.product(("polyak", "recursive"), (False, True)):
        model = Model()
        whole = wrap(model)
        batches = [torch.tensor(Y[rows, None] * X[rows])[part] for rows in ROWS]

        def g(batch, model=model):
            return torch.relu(0.5 - batch @ model.x).mean()

        settings = constrained(model, momentum=momentum, mu=0.02, multipliers=True)
        if concave:
            settings["concave"] = Expected(g, batches)
        optimizer = MoSSP(whole.parameters(), "l1-l2:0.1", **settings)
        for rows in ROWS:
            optimizer.step(closure_of(whole, rows[part]))
        ends[momentum, concave] = torch.cat([model.x, optimizer._constraints.lam]).tolist()
    return ends


def trained_on_data(wrap, part, process=0):
    """The same under a constraint on data, of which every process has a part of every batch."""
    data = [(torch.tensor(X[rows]), torch.tensor(Y[rows])) for rows in ROWS[::-1]]
    ends = {}
    for momentum in ("polyak", "recursive"):
        model = Model()
        whole = wrap(model)

        def over(batch, model=model):
            rows, labels = batch
            each = torch.nn.functional.softplus(-labels * (rows @ model.x))
            return {"loss": each.mean() - 0.2, "square": (rows @ model.x).square().mean() - 1}

        loaders = [[(A[part], b[part]) for A, b in data[i:]] for i in range(2)]
        given = {"data": Expected(over, *loaders), "norm": lambda model=model: sphere(model)}
        settings = {"momentum": momentum, "mu": 0.02, "multipliers": True}
        optimizer = MoSSP(whole.parameters(), "l1-l2:0.1", inequality=given, **settings)
        for rows in ROWS:
            optimizer.step(closure_of(whole, rows[part]))
        own, found = optimizer._constraints, optimizer.evaluate()
        values = found.values["inequality"]["data"].values()
        ends[momentum] = torch.cat([model.x, own.lam, own.u, torch.stack([*values])]).tolist()
        loaders[1][len(ROWS) % 49] = torch.tensor(X) * (np.nan if process else 1), torch.tensor(Y)
        try:  # one process has the NaN
            optimizer.step(closure_of(whole, ROWS[0]))
        except ours.NonFiniteError as error:
            ends[f"said, {momentum}"] = str(error)
    return ends


def train(rank, port, queue):
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=40),
    )  # fmt: skip
    wrap = torch.nn.parallel.DistributedDataParallel
    ends = trained(wrap, slice(2 * rank, 2 * rank + 2))
    ends["data"] = trained_on_data(wrap, slice(2 * rank, 2 * rank + 2), rank)
    model = Model()
    whole = wrap(model)
    optimizer = MoSSP(whole.named_parameters())
    factors = 1.0, 1.0, float("nan") if rank == 1 else 1.0  # one process has the NaN
    try:
        for factor in factors:
            optimizer.step(lambda factor=factor: (factor * whole(ROWS[rank])).backward())
            ends["last"] = model.x.tolist()
            ends["before"] = optimizer.state[model.b]["before"].tolist()
    except ours.NonFiniteError as error:
        ends["said"], ends["restored"] = str(error), model.b.tolist()
    g = Expected(lambda rows: (factors[rank and 2] * rows @ model.x).mean(), [torch.tensor(X)])
    optimizer = MoSSP(whole.parameters(), concave=g)
    try:
        optimizer.step(lambda: whole(ROWS[rank]).backward())
    except ours.NonFiniteError as error:
        ends["said of g"] = str(error).split(":")[0]
    queue.put((rank, ends))
    dist.destroy_process_group()


def test_processes_agree_and_follow_one_on_the_joint_batch():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=train, args=(r, port, queue), daemon=True) for r in range(2)]
    for worker in workers:
        worker.start()
    try:
        ends = dict(queue.get(timeout=90) for _ in workers)
        for worker in workers:
            worker.join(timeout=20)
    finally:
        for worker in workers:
            worker.kill()
    assert ends[0] == ends[1]
    assert "At step 2 the gradient of the loss by parameter" in ends[0]["said"]
    assert ends[0]["restored"] == ends[0]["before"]
    for which, alone in trained(lambda model: model, slice(None)).items():
        np.testing.assert_allclose(ends[0][which], alone, rtol=0, atol=1e-12)
    assert ends[0]["said of g"] == "At step 0 the concave part is nan"
    for momentum, alone in trained_on_data(lambda model: model, slice(None)).items():
        np.testing.assert_allclose(ends[0]["data"][momentum], alone, rtol=0, atol=1e-12)
        said = ends[0]["data"][f"said, {momentum}"]
        assert "At step 50 inequality['data']['loss'] is nan" in said
