"""What is pickled, copied or sent to another process is the same, bit for bit.

JAX is in its default precision here, float32, while everything of ours is float64.
"""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import joblib
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp import constraints, losses, schedules
from mossp.app.features import Features
from mossp.app.model import Model
from mossp.data.sparse import SparseRows
from mossp.expressions import parse
from mossp.fairness import Covariances
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV, SparseCCA, SparsePCA

pytestmark = pytest.mark.slow


RNG = np.random.default_rng(0)
A = RNG.normal(size=(37, 4)) / 3
B = A @ np.array([1.0, 0.0, -2.0, 0.0]) + 0.1 * RNG.normal(size=37)
THIRDS = np.arange(1.0, 5.0) / 3
SPARSE = scipy.sparse.random(40, 6, 0.4, format="csr", random_state=1)
SPARSE = scipy.sparse.vstack([SPARSE, scipy.sparse.csr_matrix(np.full((1, 6), 1 / 3))]).tocsr()
LONG_ROW = scipy.sparse.random(3000, 60, 0.02, format="lil", random_state=1)
LONG_ROW[7] = 1 / 3  # so that there are further segments


def plane(x):
    return x.sum() - 1 / 3


def bowl(x):
    return jnp.sum((x - jnp.asarray(THIRDS, x.dtype)) ** 2)


def normal(key, size):
    return jax.random.normal(key, (size, 4))


def nearest(x, batch):
    return 0.5 * jnp.mean(jnp.sum((x - batch) ** 2, axis=-1))


class Shifted(eqx.Module):
    """A loss of a user's, whose array is one of JAX in float64."""

    target: jax.Array

    def __call__(self, x):
        return jnp.sum((x - self.target) ** 2)


def in_float64(values):
    with jax.enable_x64(True):
        return jnp.asarray(values, jnp.float64)


def finite(data=(A, B)):
    return mossp.Problem(losses.squared, data, mossp.L1(0.01), equality=plane)


def solved(problem=None, **settings):
    return mossp.solve(problem or finite(), np.full(4, 0.1), method="mossp-r", steps=40, **settings)


def model():
    features = Features((("age", None), ("town", ("a", "b"))), (1 / 3, 0.0, 0.0), (0.1, 1.0, 1.0))
    return Model("regressor", "squared", "pay", None, features, [[1 / 3, 2.0, 0.0]], [1 / 7])


CLASSES = np.where(B > 0, "yes", "no")

THINGS = {
    "Problem": finite,
    "Problem, sparse": lambda: mossp.Problem(losses.squared, (SPARSE, np.ones(41) / 3)),
    "Problem, sparse with a long row": lambda: mossp.Problem(
        losses.squared, (LONG_ROW.tocsr(), np.ones(3000) / 3)
    ),
    "Problem, one array": lambda: mossp.Problem(nearest, A),
    "Problem, whole numbers": lambda: mossp.Problem(nearest, np.arange(40).reshape(10, 4)),
    "Problem, deterministic": lambda: mossp.Problem(bowl),
    "Problem, a sampler": lambda: mossp.Problem(nearest, mossp.Sampler(normal)),
    "Problem, a stream": lambda: mossp.Problem(nearest, mossp.Stream([A, A])),
    "Problem, a user's module": lambda: mossp.Problem(Shifted(in_float64(THIRDS))),
    "Problem, solved": lambda: [p := finite(), solved(p)][0],
    "Finite": lambda: finite().data,
    "SparseRows": lambda: SparseRows.of(SPARSE),
    "SparseRows on the device": lambda: mossp.Problem(losses.squared, (SPARSE, np.ones(41))).data,
    "Sampler": lambda: mossp.Sampler(normal),
    "Stream": lambda: mossp.Stream([A, A]),
    "Result": solved,
    "Result, replicas": lambda: solved(replicas=2),
    "Certificate": lambda: solved().certificate,
    "Status": lambda: mossp.Status.CONVERGED,
    "Path": lambda: mossp.path(
        finite(), [0.1, 0.01], np.zeros(4), regularizer=mossp.L1, steps=20, method="mossp-r"
    ),
    "Constants": lambda: mossp.estimate_constants(finite(), np.full(4, 0.1)),
    "Model": model,
    "Expression": lambda: parse("sum(x**2) = 1", columns=2)[0],
    "Covariances": lambda: Covariances(THIRDS[None], 1 / 3),
    "MoSSPClassifier": lambda: MoSSPClassifier(steps=50),
    "MoSSPClassifier, fitted": lambda: MoSSPClassifier(steps=50).fit(A, CLASSES),
    "MoSSPClassifier, in parts": lambda: MoSSPClassifier(regularizer="l1:0.01").partial_fit(
        A, CLASSES, classes=["no", "yes"]
    ),
    "MoSSPRegressor, fitted": lambda: MoSSPRegressor("huber:1", steps=50).fit(A, B),
    "PathCV, fitted": lambda: PathCV(MoSSPRegressor(steps=20), lams=3, cv=2).fit(A, B),
    "SparsePCA, fitted": lambda: SparsePCA(1, steps=50).fit(A),
    "SparseCCA": lambda: SparseCCA(1),
}
REGULARIZERS = [
    mossp.Zero(), mossp.L1(1 / 3), mossp.MCP(1 / 3, 3.0), mossp.SCAD(1 / 3), mossp.CappedL1(1 / 3),
    mossp.L1MinusL2(1 / 3), mossp.LogSum(1 / 3), mossp.TransformedL1(1 / 3),
    mossp.TruncatedL1(1 / 3, k=2), mossp.TruncatedL1MinusL2(1 / 3, k=2),
    mossp.Box(mossp.L1(0.1), -1 / 3, 1 / 3), mossp.Ball(mossp.L1(0.1), 1 / 3),
    mossp.Nonnegative(mossp.L1(1 / 3)),
    mossp.Ridge(1 / 3), mossp.ElasticNet(1 / 3), mossp.PlusRidge(mossp.MCP(1 / 3), THIRDS),
    mossp.Group(mossp.L1(1 / 3), [[0, 1], [2, 3]]), mossp.Weighted(mossp.L1(1 / 3), THIRDS),
    mossp.Blocks({"a": mossp.L1(1 / 3), "b": mossp.Zero()}),
    mossp.Weighted(mossp.L1(in_float64(1 / 3)), in_float64(THIRDS)),
]  # fmt: skip
CONSTRAINTS = [
    constraints.Sphere(1 / 3), constraints.NormBudget(1 / 3), constraints.Budget(THIRDS, 1 / 3),
    constraints.Linear(A[:2], B[:2]), constraints.Linear(in_float64(A[:2]), in_float64(B[:2])),
    constraints.Orthogonal(),
]  # fmt: skip
RULES = [
    schedules.Constant(rho=5.0, mu=1 / 3, alpha=0.1), schedules.Measured(), schedules.Theorem(),
    schedules.AlacaogluWright(), schedules.LuMeiXiao(), schedules.Paper(), schedules.Auto(),
    schedules.Schedule(rho=in_float64(1 / 3), mu=0.1, alpha=1.0),
]  # fmt: skip
MOMENTA = [mossp.Plain(), mossp.Full(), mossp.Polyak(), mossp.Recursive(), mossp.SVRG(epoch=7)]
for thing in (*REGULARIZERS, *CONSTRAINTS, *RULES, *MOMENTA):
    THINGS[f"{len(THINGS)} {type(thing).__name__}"] = lambda thing=thing: thing
for name, make in mossp.METHODS.items():
    THINGS[f"method {name}"] = make
for name, make in losses.NAMES.items():
    THINGS[f"loss {name}"] = make


def by_joblib(thing):
    buffer = io.BytesIO()
    joblib.dump(thing, buffer)
    buffer.seek(0)
    return joblib.load(buffer)


WAYS = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "protocol 2": lambda thing: pickle.loads(pickle.dumps(thing, 2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "joblib": by_joblib,
}


CACHES = ("_sources", "_online")


def parts(thing, seen=()):
    """All that a thing is made of, arrays with their types and bytes; caches are left out."""
    if isinstance(thing, (np.ndarray, np.generic, jax.Array)):
        kind = "jax" if isinstance(thing, jax.Array) else "numpy"
        a = np.asarray(thing)
        return (kind, a.dtype.str, a.shape, a.tobytes())
    if isinstance(thing, dict):
        return {str(k): parts(v, seen) for k, v in thing.items() if k not in CACHES}
    if isinstance(thing, (list, tuple)):
        return [type(thing).__name__, *(parts(v, seen) for v in thing)]
    if isinstance(thing, float):
        return thing.hex()
    if isinstance(thing, (str, int, bytes, type(None), type)) or thing in seen:
        return thing
    if hasattr(thing, "__dict__") and not hasattr(thing, "__code__"):
        return [type(thing).__name__, parts(vars(thing), (*seen, thing))]
    return getattr(thing, "__qualname__", type(thing).__name__)


@pytest.mark.parametrize("name", THINGS)
def test_every_public_object_is_kept_bit_for_bit(name):
    assert not jax.config.jax_enable_x64
    thing = THINGS[name]()
    before = parts(thing)
    for way, send in WAYS.items():
        back = send(thing)
        assert type(back) is type(thing)
        assert parts(back) == before, way
    assert parts(thing) == before


def test_a_problem_from_a_pickle_is_solved_alike():
    """The data were float32 once they had been loaded, and the certificate spoke of those."""
    for problem in (finite(), mossp.Problem(losses.squared, (SPARSE, np.ones(41) / 3))):
        back = pickle.loads(pickle.dumps(problem))
        n = 4 if problem.equality else 6
        a, b = (mossp.solve(p, np.full(n, 0.1), steps=60, seed=3) for p in (problem, back))
        assert a.x.tobytes() == b.x.tobytes() and a.fun == b.fun
        assert a.certificate.criticality == b.certificate.criticality


def test_a_copy_is_checked_like_the_first():
    with pytest.raises(ValueError, match="needs labels"):
        mossp.Problem(losses.logistic, finite().data)
    assert mossp.Problem(losses.huber, finite().data).samples == 37


def solve_there(sent, back):
    problem, x0 = pickle.loads(sent)
    back.put(mossp.solve(problem, x0, method="mossp-r", steps=40).x)


def test_another_process_solves_the_same_problem():
    there = multiprocessing.get_context("spawn")
    back = there.Queue()
    sent = pickle.dumps((finite(), np.full(4, 0.1)))
    child = there.Process(target=solve_there, args=(sent, back))
    child.start()
    try:
        x = back.get(timeout=120)
    finally:
        child.join(30)
    assert x.tobytes() == solved().x.tobytes()


def test_what_cannot_be_pickled_is_said_by_pickle():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(mossp.Problem(lambda x: x @ x))
    assert copy.copy(mossp.Problem(lambda x: x @ x)).samples is None
