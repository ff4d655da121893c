"""The shapes of the paper as types: n entries of x, m constraints, k vectors at a time.

Dimensions of one name have one length within a call, so that `(x: Vector, w: Vector) -> Vector`
says that all three have as many entries; tests verify it at run time (beartype, see conftest.py).
For a static type checker an alias is the type of the array alone.

    Vector, Multipliers, ...    arrays of JAX, traced ones included: what runs on the device
    HostVector, ...             arrays of NumPy: what is computed on the host, in float64
    AnyVector, AnyNumber        of any array library: what the regularisers take and return
    Number                      a real number of Python, NumPy or JAX, such as rho or mu
    PyTree, Batch, Draws        x as the user has it; rows of the data; random numbers of steps
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import ArrayLike

if TYPE_CHECKING:  # a static checker knows no trees
    PyTree: TypeAlias = Any
else:
    from jaxtyping import PyTree

__all__ = [
    "AnyArray",
    "AnyKey",
    "AnyMultipliers",
    "AnyNumber",
    "AnySource",
    "AnyVector",
    "Array",
    "ArrayLike",
    "Batch",
    "ConstraintValues",
    "DType",
    "Draws",
    "Hessian",
    "HostArray",
    "HostHessian",
    "HostJacobian",
    "HostMultipliers",
    "HostVector",
    "HostVectors",
    "Index",
    "Jacobian",
    "Json",
    "LossFunction",
    "Mask",
    "Multipliers",
    "Namespace",
    "Number",
    "Predictions",
    "PyTree",
    "RowLosses",
    "Scalar",
    "Targets",
    "Vector",
    "Vectors",
]

# On the device ---------------------------------------------------------------------------------

Scalar: TypeAlias = Float[Array, ""]
Vector: TypeAlias = Float[Array, "n"]  # x, y, z, gradients, subgradients
Vectors: TypeAlias = Float[Array, "k n"]  # one per row: replicas, blocks of samples
ConstraintValues: TypeAlias = Float[Array, "m"]  # c = (c_E, c_I)
Multipliers: TypeAlias = Float[Array, "m"]  # q and lam, in the order of c
Jacobian: TypeAlias = Float[Array, "m n"]  # one gradient of a constraint per row
Hessian: TypeAlias = Float[Array, "n n"]
Predictions: TypeAlias = Float[Array, "rows ..."]  # A @ x, several outputs per row or one
Targets: TypeAlias = Shaped[Array | np.ndarray, "rows ..."]
RowLosses: TypeAlias = Float[Array, "rows"]
Mask: TypeAlias = Bool[np.ndarray, "m"]  # of constraints
Index: TypeAlias = int | Int[Array, ""]

# On the host -----------------------------------------------------------------------------------

HostArray: TypeAlias = Shaped[np.ndarray, "..."]
HostVector: TypeAlias = Float[np.ndarray, "n"]
HostVectors: TypeAlias = Float[np.ndarray, "k n"]
HostMultipliers: TypeAlias = Float[np.ndarray, "m"]
HostJacobian: TypeAlias = Float[np.ndarray, "m n"]
HostHessian: TypeAlias = Float[np.ndarray, "n n"]

# Either, and other libraries -------------------------------------------------------------------

Number: TypeAlias = float | int | np.floating | Float[np.ndarray, ""] | Scalar
# NumPy, JAX and torch have no common type: for a static checker these are anything.
AnyArray: TypeAlias = Any
AnyNumber: TypeAlias = Any  # a number, or one per coordinate where a function is separable
AnyVector: TypeAlias = Shaped[Any, "n"]
AnyMultipliers: TypeAlias = Shaped[Any, "m"]
AnyKey: TypeAlias = Any  # of a container in a tree: a name, a place, a field
Namespace: TypeAlias = Any  # of an array library: numpy, jax.numpy, torch

# The user's own ----------------------------------------------------------------------------------

Batch: TypeAlias = PyTree  # rows of the data, in the structure in which they are given
AnySource: TypeAlias = Any  # of data: finite, a sampler, a stream, none
Draws: TypeAlias = PyTree  # what a source of data makes batches from, per step
LossFunction: TypeAlias = Callable[..., Scalar]  # loss(x, batch), or loss(x) without data
Json: TypeAlias = Any  # of a description in a file: text, numbers, lists and tables
DType: TypeAlias = DTypeLike
