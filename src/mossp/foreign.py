"""Functions that are not written in JAX: a loss or a constraint in NumPy, PyTorch, C or Fortran.

A compiled program calls back into Python where it needs a value. What JAX would derive by itself
comes from the user:

    f(x; rows),    grad f(x; rows),    d/dt grad f(x + t v; rows)

The last one, a Hessian-vector product, is taken by central differences of the gradient where it is
not given.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.differences import difference_step
from mossp._base.printing import shown
from mossp._base.structure import Structure
from mossp._base.types import AnyArray, AnyVector, PyTree
from mossp._base.validation import whole
from mossp.data import Source, is_rows
from mossp.data.crossing import as_words, crossed, from_words, joined, split
from mossp.functions import describe, errors_named

Host = Callable[..., Any]
ROWS_SEEN = 3  # of the data, before a run
VALUE, GRADIENT, PRODUCT = range(3)
WHAT = ("value", "gradient", "hessian_product")


def from_numpy(
    value: Host, gradient: Host, hessian_product: Host | None = None, *, outputs: int | None = None
) -> FromNumpy:
    """A loss or a constraint that is computed outside of JAX, for `mossp.Problem`.

    The functions get x in the shape of x0 and, where there are data, a batch as `data` has it:
    NumPy arrays, and scipy.sparse for sparse rows. They are called while a compiled program waits,
    from a thread of its own, so that they cannot themselves call functions of JAX. PyTorch:
    `torch.from_numpy(x)`, and `.numpy()` on the way back.

    What is lost: a call into Python a step (some 100 microseconds), one for each replica in turn,
    and the fusion of the loss with the rest. Without `hessian_product` polishing differences the
    gradient, two calls a product; it still ends at 1e-10 where the gradient is that accurate.

    Parameters
    ----------
    value : callable
        value(x) or value(x, batch): the mean over the rows of the batch; a number, or a vector of
        `outputs` numbers.
    gradient : callable
        Likewise: the gradient, in the shape of x. Where there are several outputs, the Jacobian: a
        matrix with a row for each of them and a column for each entry of a vector x.
    hessian_product : callable, optional
        hessian_product(x, v) or (x, v, batch): the derivative of `gradient` along v, which is in
        the shape of x.
    outputs : int, optional
        The length of what `value` returns, for a constraint that is a vector. Left out: a number.

    Returns
    -------
    FromNumpy
        To be used as `loss`, `equality`, `inequality`, or inside of `mossp.Expected`.

    Examples
    --------
    >>> import numpy as np
    >>> import mossp
    >>> A, b = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([1.0, 2.0, 2.0])
    >>> squared = mossp.from_numpy(
    ...     lambda x, batch: 0.5 * np.mean((batch[0] @ x - batch[1]) ** 2),
    ...     lambda x, batch: batch[0].T @ (batch[0] @ x - batch[1]) / len(batch[1]),
    ...     lambda x, v, batch: batch[0].T @ (batch[0] @ v) / len(batch[1]),
    ... )
    >>> result = mossp.solve(mossp.Problem(squared, (A, b)), np.zeros(2))
    >>> result.success, np.allclose(result.x, np.linalg.lstsq(A, b)[0])
    (True, True)
    """
    for name, function in (("value", value), ("gradient", gradient)):
        if not callable(function):
            raise TypeError(
                f"{name} must be a function of NumPy arrays, but {shown(function)} was given."
            )
    if hessian_product is not None and not callable(hessian_product):
        raise TypeError(
            "hessian_product must be a function (x, v) of NumPy arrays, or left out, but "
            f"{shown(hessian_product)} was given."
        )
    if outputs is not None:
        outputs = whole("outputs", outputs, 1)
    return FromNumpy(value, gradient, hessian_product, outputs)


def check_foreign(what: str, function: Any, x0: PyTree, source: Source | None) -> None:
    """Evaluate a function of NumPy once, where it is one: a wrong shape is said before a run."""
    if not isinstance(function, FromNumpy):
        return
    rows = [] if source is None or source.deterministic else source.peek(1, ROWS_SEEN)
    if source is None or source.deterministic or rows:
        with errors_named(what, describe(x0, rows[0] if rows else None)):
            function.check(x0, *[jax.tree.map(np.asarray, batch) for batch in rows])


class FromNumpy:
    """A function of x, and of a batch where it looks at rows, by calls into Python."""

    def __init__(
        self, value: Host, gradient: Host, hessian_product: Host | None, outputs: int | None
    ) -> None:
        self.value, self.gradient, self.hessian_product = value, gradient, hessian_product
        self.outputs = outputs
        self.__qualname__ = getattr(value, "__qualname__", type(value).__qualname__)

    def __call__(self, x: PyTree, *rows: PyTree) -> AnyArray:
        leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(x)]
        vector = leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves)
        return by_callbacks(self.functions, Structure.of(x), self.outputs)(vector, *rows)

    @property
    def functions(self) -> tuple[Host, Host, Host | None]:
        return self.value, self.gradient, self.hessian_product

    def check(self, x: PyTree, *rows: PyTree) -> None:
        """Raise ValueError where a function does not return what is needed, at x and some rows."""
        structure, host = Structure.of(x), [on_host(batch) for batch in rows]
        shape_of_x = structure.treedef, structure.shapes, structure.paths
        for which, function in enumerate(self.functions):
            if function is not None:
                points = [x] if which < PRODUCT else [x, x]
                call = Call(self.functions, which, *shape_of_x, self.outputs)
                call.checked(function(*points, *host))


def by_callbacks(
    functions: tuple[Host, Host, Host | None], structure: Structure, outputs: int | None
) -> Callable[..., AnyArray]:
    """The function of a vector x, with the derivatives that forward over reverse mode needs."""

    def called(which: int, *points: AnyVector, rows: tuple[PyTree, ...]) -> AnyArray:
        words, kinds = as_words((points, rows))
        call = Call(
            functions, which, structure.treedef, structure.shapes, structure.paths, outputs, kinds
        )
        found = jax.pure_callback(call, crossed(call.like), words, vmap_method="sequential")
        return joined(found, call.like)

    @jax.custom_jvp
    def value(x: AnyVector, *rows: PyTree) -> AnyArray:
        return called(VALUE, x, rows=rows)

    @jax.custom_jvp
    def gradient(x: AnyVector, *rows: PyTree) -> AnyArray:
        return called(GRADIENT, x, rows=rows)

    @value.defjvp
    def _(points: Any, tangents: Any) -> tuple[AnyArray, AnyArray]:
        return value(*points), gradient(*points) @ tangents[0]

    @gradient.defjvp
    def _(points: Any, tangents: Any) -> tuple[AnyArray, AnyArray]:
        (x, *rows), v = points, tangents[0]
        if functions[PRODUCT] is not None:
            return gradient(x, *rows), called(PRODUCT, x, v, rows=tuple(rows))
        step = difference_step(x, v)
        ahead, behind = gradient(x + step * v, *rows), gradient(x - step * v, *rows)
        return gradient(x, *rows), (ahead - behind) / (2 * step)

    return value


@dataclasses.dataclass(frozen=True)
class Call:
    """What a compiled program calls: equal where the user's functions and all shapes are.

    It holds all three functions, whichever it calls: programs are told apart by what they call, and
    one that calls for values only is differentiated later.
    """

    functions: tuple[Host, Host, Host | None]
    which: int
    treedef: jax.tree_util.PyTreeDef  # of x
    shapes: tuple[tuple[int, ...], ...]
    paths: tuple[str, ...]
    outputs: int | None
    kinds: tuple[np.dtype[Any], ...] = (np.dtype(np.float64),)  # of the arguments, x first

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.kinds[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the value, or of the gradient and its derivative."""
        size = sum(math.prod(shape) for shape in self.shapes)
        several = () if self.outputs is None else (self.outputs,)
        return (*several, size) if self.which else several

    @property
    def like(self) -> jax.ShapeDtypeStruct:
        """What is handed over."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype)

    def __call__(self, words: PyTree) -> np.ndarray:
        points, rows = from_words(words, self.kinds)
        function = self.functions[self.which]
        assert function is not None
        answer = function(*map(self.tree, points), *map(on_host, rows))
        return split(self.checked(answer), self.like)

    def tree(self, x: np.ndarray) -> PyTree:
        return Structure(self.treedef, self.shapes, self.paths).unravel(x)

    def checked(self, answer: PyTree) -> np.ndarray:
        """As one array; ValueError where its shape is another one than is needed."""
        if self.which and self.outputs is None:  # a gradient in the shape of x
            answer = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(answer)])
        found = np.asarray(answer)
        if found.shape != self.shape:
            raise ValueError(
                f"{WHAT[self.which]} returns the shape {found.shape}, but {self.shape} is needed"
            )
        return found


def on_host(rows: PyTree) -> PyTree:
    """A batch as `data` has it: arrays of NumPy, and sparse rows as scipy.sparse has them."""
    matrix = lambda a: a.by_columns().tocsr() if is_rows(a) else a  # noqa: E731
    return jax.tree.map(matrix, rows, is_leaf=is_rows)
