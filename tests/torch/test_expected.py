"""Constraints that are means over data: the formulas, what is refused, what is not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import mossp.torch as ours
from mossp.torch import Expected, MoSSP
from tests.torch.models import ROWS, B, Model, N, W, X, Y, closure_of, run, sphere

XT, YT = torch.tensor(X), torch.tensor(Y)
SHARE = (YT > 0).double().mean()


def over(model, bound=0.5):
    """The mean loss of each class, less a bound."""

    def function(batch):
        rows, labels = batch
        each = torch.nn.functional.softplus(-labels * (rows @ model.x))
        parts = [(each * (labels > 0)).mean() / SHARE, (each * (labels < 0)).mean() / (1 - SHARE)]
        return {"class": torch.stack(parts) - bound}

    return function


def loader(seed, size=B, **settings):
    draws = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(XT, YT), size, shuffle=True, generator=draws, **settings)


def batches(seed, count):
    """What a step sees, from a loader of its own."""
    again, seen = loader(seed), []
    while len(seen) < count:
        seen.extend(again)
    return seen[:count]


# The formulas ---------------------------------------------------------------------------------


def by_formulas(momentum, apart, steps, mu, rho, alpha, dual):
    """The points, with a plain constraint besides; every derivative by itself."""
    model = Model()
    params = list(model.parameters())
    function = over(model)

    def flat(value, q=None):
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, params, q)])

    def loss(x, rows):
        put(x)
        return flat(model(rows))

    def put(x):
        with torch.no_grad():
            model.a.copy_(x[:2].reshape(1, 2))
            model.b.copy_(x[2:])

    def values(x, batch):
        put(x)
        return function(batch)["class"]

    def pull(x, batch, q):
        return flat(values(x, batch), q)

    x = model.x.detach().clone()
    lam, lam_norm, seen = torch.zeros(2).double(), 0.0, []
    Bs, Cs = batches(1, steps), batches(2 if apart else 1, steps)
    d = u = q = before = None
    for k in range(steps):
        fresh = values(x, Cs[k]).detach()
        if u is None:
            u = fresh
        elif momentum == "recursive":
            u = fresh + (1 - alpha) * (u - values(before, Cs[k]).detach())
        else:
            u = (1 - alpha) * u + alpha * fresh
        q_new = (lam + rho * u).clamp(min=0)
        new = loss(x, ROWS[k]) + pull(x, Bs[k], q_new)
        if d is None:
            d = new
        elif momentum == "recursive":
            d = new + (1 - alpha) * (d - loss(before, ROWS[k]) - pull(before, Bs[k], q))
        else:
            d = (1 - alpha) * d + alpha * new
        q, before = q_new, x
        c = x @ x - 1
        x = x - mu * (d + 2 * x * (lam_norm + rho * c))
        lam = torch.maximum(lam + alpha * dual * rho * u, (1 - alpha * dual) * lam)
        lam_norm = lam_norm + dual * rho * (x @ x - 1)
        seen.append(x.numpy().copy())
    return np.stack(seen), u, lam


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_steps_are_the_formulas(momentum, apart):
    settings = {"mu": 0.02, "rho": 3.0, "alpha": 0.3, "dual": 0.2}
    model = Model()
    expected = Expected(over(model), loader(1), values=loader(2) if apart else None)
    optimizer = MoSSP(
        model.parameters(), equality=lambda: sphere(model), inequality={"loss": expected},
        momentum=momentum, multipliers=True, **settings,
    )  # fmt: skip
    x = run(model, optimizer, ROWS[:30])
    points, u, lam = by_formulas(momentum, apart, 30, **settings)
    np.testing.assert_allclose(x, points, rtol=0, atol=1e-12)
    assert (u > 0).any() and (lam > 0).all()  # it acts
    violation = torch.cat([(model.x @ model.x - 1).reshape(1), u.clamp(min=0)]).norm()
    assert optimizer.violation() == pytest.approx(violation.item(), rel=1e-10)
    q = optimizer.multipliers["inequality"]["loss"]["class"]
    torch.testing.assert_close(q, (lam + 3.0 * u).clamp(min=0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_on_all_rows_and_without_memory_it_is_a_closure(momentum):
    points = []
    for kind in ("loader", "own", "closure"):
        model = Model()
        function = over(model)
        closure = lambda: function((XT, YT))  # noqa: E731, B023
        given = {"loader": Expected(function, [(XT, YT)]), "own": Expected(closure)}
        settings = {"alpha": 1.0, "mu": 0.02, "momentum": momentum}
        optimizer = MoSSP(model.parameters(), inequality=given.get(kind, closure), **settings)
        points.append(run(model, optimizer))
    np.testing.assert_allclose(points[0], points[2], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(points[0], points[1])


def test_a_closure_sees_the_same_rows_at_both_points_of_a_step():
    """By torch's random numbers; other ones are refused where two points are compared."""
    model, seen = Model(), []

    def drawn():
        rows = torch.randint(N, (B,))
        seen.append(rows)
        return over(model)((XT[rows], YT[rows]))

    optimizer = MoSSP(model.parameters(), inequality=Expected(drawn))
    for rows in ROWS[:3]:
        seen.clear()
        optimizer.step(closure_of(model, rows))
    assert len(seen) == 2 and torch.equal(*seen)
    own = torch.Generator().manual_seed(0)

    def otherwise():
        rows = torch.randint(N, (B,), generator=own)
        return over(model)((XT[rows], YT[rows]))

    optimizer = MoSSP(model.parameters(), inequality=Expected(otherwise))
    with pytest.raises(ValueError, match="inequality must be the same when it is called twice"):
        optimizer.step(closure_of(model, ROWS[0]))
    optimizer = MoSSP(model.parameters(), inequality=Expected(otherwise), momentum="polyak")
    optimizer.step(closure_of(model, ROWS[0]))


# Evaluation -----------------------------------------------------------------------------------


def test_evaluation_is_that_of_all_rows_and_disturbs_nothing():
    """The last batch has 20 % 7 = 6 rows; the error is that of the weighted batch means."""
    model, other = Model(), Model()
    whole = over(model)((XT, YT))["class"].detach()
    fixed = DataLoader(TensorDataset(XT, YT), 7)
    given = {"n": lambda: model.x.sum(), "loss": Expected(over(model), loader(1))}
    optimizer = MoSSP(model.parameters(), inequality=given)
    for found in (
        optimizer.evaluate(),
        optimizer.evaluate(fixed),
        optimizer.evaluate({"loss": fixed}),
    ):
        values = found.values["inequality"]
        torch.testing.assert_close(values["loss"]["class"], whole, rtol=1e-12, atol=0)
        assert values["n"].item() == model.x.sum().item() and found.errors["inequality"]["n"] == 0
        c = torch.cat([values["n"].reshape(1), whole]).clamp(min=0)
        assert found.violation == pytest.approx(c.norm().item(), rel=1e-12)
    means = torch.stack([over(model)(batch)["class"].detach() for batch in fixed]).numpy()
    n = np.array([7, 7, 6.0])[:, None]
    spread = (n * (means - whole.numpy()) ** 2).sum(0) / 2
    errors = found.errors["inequality"]["loss"]["class"]
    np.testing.assert_allclose(errors, np.sqrt(spread / N), rtol=1e-12)
    points = []
    for each, pause in ((model, MoSSP.evaluate), (other, id)):
        optimizer = MoSSP(each.parameters(), inequality=Expected(over(each), loader(1)))
        torch.manual_seed(0)
        for rows in ROWS[:9]:
            points.append(run(each, optimizer, [rows]))
            pause(optimizer)
        points.append(torch.rand(1).numpy())
    for with_pauses, without in zip(points[:10], points[10:], strict=True):
        np.testing.assert_array_equal(with_pauses, without)


def test_a_closure_is_evaluated_by_draws_with_its_error():
    model = Model()

    def drawn():
        rows = torch.randint(N, (B,))
        return over(model)((XT[rows], YT[rows]))["class"]

    optimizer = MoSSP(model.parameters(), equality=Expected(drawn))
    torch.manual_seed(0)
    found = optimizer.evaluate(draws=4000)
    off = (found.values["equality"] - over(model)((XT, YT))["class"]) / found.errors["equality"]
    assert off.abs().max() < 4 and 0 < found.errors["equality"].max() < 0.05
    with pytest.raises(ValueError, match="cannot be counted"):
        uneven = [(XT, YT, torch.zeros(3))]
        given = Expected(lambda batch: over(model)(batch[:2]), uneven)
        MoSSP(model.parameters(), inequality=given).evaluate()


# Numbers that are not finite ------------------------------------------------------------------


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
@pytest.mark.parametrize("which", ["loader", "values"])
def test_a_batch_with_nan_is_named_left_out_and_the_step_before_undone(momentum, which):
    good = [(XT[i : i + 4], YT[i : i + 4]) for i in range(0, N, 4)]
    bad = [*good[:3], (XT[:4] * math.nan, YT[:4]), *good[3:]]
    model = Model()
    loaders = {"loader": good, "values": good, which: bad}
    given = {"fair": Expected(over(model), loaders["loader"], loaders["values"], check=False)}
    settings = {"momentum": momentum, "multipliers": True}
    optimizer = MoSSP(model.parameters(), inequality=given, **settings)
    for rows in ROWS[:3]:
        before = model.x.detach().clone()
        lam = optimizer._constraints.lam
        optimizer.step(closure_of(model, rows))
    u, says = optimizer._constraints.u, r"inequality\['fair'\]\['class'\](\[0\]| at the point)"
    with pytest.raises(ours.NonFiniteError, match=f"At step 3 (the gradient of )?{says}"):
        optimizer.step(closure_of(model, ROWS[3]))
    assert torch.equal(model.x, before) and torch.equal(optimizer._constraints.lam, lam)
    assert torch.equal(optimizer._constraints.u, u)
    for rows in ROWS[4:8]:  # the batch is not seen again
        optimizer.step(closure_of(model, rows))
    assert model.x.isfinite().all() and math.isfinite(optimizer.violation())


@pytest.mark.parametrize("fails", ["closure", "constraint"])
def test_a_step_that_raises_leaves_everything_as_it_was(fails):
    def start(model, hook=lambda: None):
        def function(batch):
            hook()
            return over(model)(batch)

        given = Expected(function, loader(1), values=loader(2))
        return MoSSP(model.parameters(), "mcp:0.1", inequality=given, multipliers=True, mu=0.02)

    broken = False

    def hook():
        if broken:
            raise KeyboardInterrupt

    unbroken, model = Model(), Model()
    whole = run(unbroken, start(unbroken))
    optimizer = start(model, hook if fails == "constraint" else lambda: None)
    run(model, optimizer, ROWS[:7])
    broken = True
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure_of(model, ROWS[9]) if fails == "constraint" else hook)
    broken = False
    np.testing.assert_array_equal(run(model, optimizer, ROWS[7:]), whole[7:])


# Wrong input ----------------------------------------------------------------------------------


def rows_of(batch):
    return torch.nn.functional.softplus(batch[0] @ MODEL.x)


MODEL = Model()
ALL = [(XT, YT)]


def within_batch(batch):
    return rows_of(batch)[batch[1] > 0].mean()


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (lambda: Expected(3.0), TypeError, "needs a function .* but 3.0 was given"),
        (lambda: Expected(rows_of, 3), TypeError, "loader must be an iterable of batches"),
        (lambda: Expected(rows_of, XT), TypeError, "batches, .* but a Tensor was given"),
        (lambda: Expected(rows_of, {"X": XT}), TypeError, "batches, .* but a dict was given"),
        (lambda: Expected(rows_of, ALL, 3), TypeError, "values must be an iterable of batches"),
        (lambda: Expected(rows_of, values=ALL), ValueError, "give a loader, too"),
        (lambda: Expected(rows_of, []), ValueError, r"loader of inequality\['a'\] has no batches"),
        (lambda: Expected(lambda batch: 0.0, ALL), TypeError, "returned 0.0"),
        (lambda: Expected(lambda batch: {}, ALL), TypeError, "must return a tensor"),
        (lambda: Expected(lambda batch: batch[1].mean(), ALL), ValueError, "no parameter that is"),
        (lambda: Expected(rows_of, ALL), ValueError, "20 entries on 20 rows and 10 on 10"),
        (lambda: Expected(lambda b: rows_of(b).sum() - 1, ALL), ValueError, "divide a sum"),
        (lambda: Expected(within_batch, ALL), ValueError, "its share of all data"),
        (lambda: 3.0, ValueError, r"inequality\['a'\] must be a function without arguments"),
    ],
)
def test_wrong_constraints_get_a_sentence_by_the_first_step(given, error, says):
    before = MODEL.x.detach().clone()
    with pytest.raises(error, match=says):
        MoSSP(MODEL.parameters(), inequality={"a": given()}).step(closure_of(MODEL, ROWS[0]))
    assert torch.equal(MODEL.x, before)


def judged(expected):
    MoSSP(MODEL.parameters(), inequality=expected).step(closure_of(MODEL, ROWS[0]))


def test_what_cannot_be_judged_or_is_not_to_be_is_let_through():
    dropped = torch.nn.Dropout(0.5)
    for function in (
        lambda batch: dropped(rows_of(batch)).mean(),  # random
        lambda batch: rows_of(batch).view(20).mean(),  # of 20 rows only
    ):
        judged(Expected(function, ALL))
    judged(Expected(within_batch, ALL, check=False))
    with pytest.raises(ours.NonFiniteError, match="inequality is nan"):
        judged(Expected(lambda batch: rows_of(batch).mean() * math.nan, ALL))
    with pytest.raises(ValueError, match="an empty dict"):
        MoSSP(MODEL.parameters(), inequality={})


def test_shapes_that_change_and_iterators_that_end_are_said():
    model = Model()
    classes = Expected(lambda batch: {str(len(batch)): (batch @ model.x).mean()}, [XT, XT[:5]])
    optimizer = MoSSP(
        model.parameters(), equality=Expected(classes.function, classes.loader, check=False)
    )
    optimizer.step(closure_of(model, ROWS[0]))
    with pytest.raises(ValueError, match=r"equality must have the same shape .*'20'.*'5'"):
        optimizer.step(closure_of(model, ROWS[1]))
    once = Expected(lambda batch: (batch @ model.x).mean() + W[0, 0], iter([XT, XT]))
    optimizer = MoSSP(model.parameters(), equality=once)
    run(model, optimizer, ROWS[:2])
    with pytest.raises(ValueError, match="an iterator ends for good"):
        optimizer.step(closure_of(model, ROWS[2]))
