"""The place in the loaders of constraints: a resumed run is the unbroken one, bit for bit."""

from __future__ import annotations

import copy
import functools
import io
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from mossp.torch import Expected, MoSSP
from mossp.torch.batches import Batches
from tests.torch.models import ROWS, Model, N, X, Y, closure_of

DATA = TensorDataset(torch.tensor(X), torch.tensor(Y))


def loss_over(model, batch):
    """With random numbers of its own, as of dropout."""
    rows, labels = batch
    each = torch.nn.functional.softplus(-labels * (rows @ model.x))
    return {"loss": (each * (0.5 + torch.rand(len(each)))).mean() - 0.3}


def drawn_over(model):
    return loss_over(model, [t[torch.randint(N, (4,))] for t in DATA.tensors])


def shuffled(size, seed):
    return DataLoader(DATA, size, shuffle=True, generator=torch.Generator().manual_seed(seed))


def with_replacement():
    """Its sampler draws 32 rows at a time, as they are needed."""
    g = torch.Generator().manual_seed(1)
    sampler = torch.utils.data.RandomSampler(DATA, True, 100, generator=g)
    return DataLoader(DATA, 7, sampler=sampler, generator=g)


def one_generator():
    """Loaders that draw from one generator, each at its own time."""
    g = torch.Generator().manual_seed(1)
    return [DataLoader(DATA, size, shuffle=True, generator=g) for size in (4, 6)]


def whole_batches(size, seed):
    """Rows are taken a batch at a time; the generator is that of a sampler within a sampler."""
    rows = torch.utils.data.RandomSampler(DATA, generator=torch.Generator().manual_seed(seed))
    sampler = torch.utils.data.BatchSampler(rows, size, drop_last=False)
    return DataLoader(DATA, batch_size=None, sampler=sampler, generator=rows.generator)


LOADERS = {
    "whole batches": lambda: [whole_batches(3, 1), whole_batches(6, 2)],
    "own generators": lambda: [shuffled(4, 1), shuffled(6, 2)],
    "one batch for both": lambda: [shuffled(4, 1)],
    "one generator": one_generator,
    "torch's numbers": lambda: [DataLoader(DATA, 4, shuffle=True)],
    "with replacement": lambda: [with_replacement(), shuffled(6, 2)],
    "a list": lambda: [[DATA[i : i + 5] for i in range(0, N, 5)]],
    "an epoch that has just ended": lambda: [shuffled(7, 1)],
    "a closure": list,
}


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
@pytest.mark.parametrize("name", LOADERS)
def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(name, momentum):
    def start():
        torch.manual_seed(5)
        model, loaders = Model(), LOADERS[name]()
        function = functools.partial(loss_over if loaders else drawn_over, model)
        given = {"data": Expected(function, *loaders), "norm": functools.partial(norm, model)}
        settings = {"momentum": momentum, "multipliers": True, "inequality": given}
        return model, MoSSP(model.parameters(), "l1-l2:0.1", **settings)

    def go(model, optimizer, batches, numbers=None):
        if numbers is not None:
            torch.set_rng_state(numbers)
        for rows in batches:
            optimizer.step(closure_of(model, rows))
        own = optimizer._constraints
        return torch.cat([model.x, own.lam, own.u, own.q]).detach()

    model, optimizer = start()
    go(model, optimizer, ROWS[:18])
    file, numbers = io.BytesIO(), torch.get_rng_state()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    copies = [copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))]
    assert torch.equal(torch.get_rng_state(), numbers)
    expected = go(model, optimizer, ROWS[18:])
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    resumed, other = start()
    resumed.load_state_dict(weights)
    torch.set_rng_state(numbers)
    other.load_state_dict(state)
    assert torch.equal(torch.get_rng_state(), numbers)
    for pair in [(resumed, other), *copies]:
        assert torch.equal(go(*pair, ROWS[18:], numbers), expected)
    assert not torch.equal(go(*start(), ROWS[18:], numbers), expected)  # the state matters


def norm(model):
    return model.x.square().sum() - 1


def test_a_state_before_the_first_step_is_a_state():
    """A fresh run takes the same mini-batches."""

    def start():
        model = Model()
        given = Expected(lambda batch: (batch[0] @ model.x).mean(), shuffled(4, 1))
        return model, MoSSP(model.parameters(), equality=given)

    ends = []
    for load in (False, True):
        model, optimizer = start()
        if load:
            state = optimizer.state_dict()
            model, optimizer = start()
            optimizer.load_state_dict(state)
        for rows in ROWS[:8]:
            optimizer.step(closure_of(model, rows))
        ends.append(model.x.detach())
    assert torch.equal(*ends)


def test_states_that_do_not_fit_are_refused():
    def optimizer(loader):
        model = Model()
        given = {"data": Expected(functools.partial(loss_over, model), loader)}
        it = MoSSP(model.parameters(), inequality=given)
        for rows in ROWS[:4]:
            it.step(closure_of(model, rows))
        return it

    state = optimizer(shuffled(4, 1)).state_dict()
    model = Model()
    plain = MoSSP(model.parameters(), inequality=functools.partial(norm, model))
    with pytest.raises(ValueError, match=r"\[\"inequality\['data'\]\"\] were Expected"):
        plain.load_state_dict(state)
    with pytest.raises(ValueError, match="must have a generator if and only if"):
        optimizer(DataLoader(DATA, 4)).load_state_dict(state)
    with pytest.raises(ValueError, match="has fewer batches than the 4"):
        optimizer(shuffled(10, 1)).load_state_dict(state)


def test_a_distributed_sampler_is_told_the_epoch():
    sampler = DistributedSampler(DATA, num_replicas=2, rank=0, seed=3)
    batches = Batches("c", DataLoader(DATA, 10, sampler=sampler))
    seen = []
    for _ in range(3):
        seen.append(batches.ahead()[1])
        batches.advance()
    assert sampler.epoch == 2 and not torch.equal(seen[0], seen[1])
    sampler.set_epoch(1)
    (expected,) = DataLoader(DATA, 10, sampler=sampler)
    assert torch.equal(seen[1], expected[1])
