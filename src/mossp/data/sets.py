"""The paper's data sets by name, and any LIBSVM file by its path.

A set is looked for in the folder given, in MOSSP_DATA, in the cache, and at last on the LIBSVM
site. What is found is checked: rows, columns, entries and labels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy  # whose parts take long to import, and are where they are first used

from mossp._base import folders
from mossp.data.libsvm import DataError, binary_labels, read_libsvm

SITE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"


class Known(NamedTuple):
    """What a set must hold."""

    rows: int
    features: int
    entries: int
    labels: dict[float, int]  # how often each occurs


KNOWN = {
    "a9a": Known(32_561, 123, 451_592, {-1.0: 24_720, 1.0: 7_841}),
    "phishing": Known(11_055, 68, 331_650, {0.0: 4_898, 1.0: 6_157}),
    "australian": Known(690, 14, 9_660, {-1.0: 383, 1.0: 307}),
}


class DataSet(NamedTuple):
    """Rows X (sparse), labels y in {-1, +1}, and where they come from."""

    name: str
    X: scipy.sparse.csr_matrix
    y: np.ndarray
    path: Path

    def unit_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """(dense rows of length 1, labels); rows of zeros stay as they are."""
        X = self.X.toarray()
        largest = np.abs(X).max(axis=1, keepdims=True)
        X = X / np.where(largest > 0, largest, 1.0)  # squares neither overflow nor vanish then
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        return X / np.where(lengths > 0, lengths, 1.0), self.y


def load_data(
    name: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None
) -> DataSet:
    """The set "a9a", "phishing" or "australian", or the LIBSVM file at a path.

    Parameters
    ----------
    name : str or path
        Of the set, or of the file.
    folder : path, optional
        Where to look first; then come the folder MOSSP_DATA, the cache (MOSSP_CACHE or the user's)
        and a download into it.

    Examples
    --------
    >>> load_data("a8a")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    FileNotFoundError: There is no data set 'a8a': ...
    """
    known = KNOWN.get(name) if isinstance(name, str) else None
    if known is None:
        path = Path(name) if folder is None else Path(folder).expanduser() / name
        if not path.is_file():
            raise FileNotFoundError(
                f"There is no data set {str(name)!r}: name one of {', '.join(KNOWN)}, or a LIBSVM "
                "file by its path."
            )
        X, y = read_libsvm(path)
        return DataSet(path.name, X, binary_labels(y, path), path)
    path = find(str(name), folder)
    X, y = read_libsvm(path)
    check(known, str(name), X, y, path)
    return DataSet(str(name), X, binary_labels(y, path), path)


def find(name: str, folder: str | os.PathLike[str] | None) -> Path:
    """The file of a known set, downloaded if it must be."""
    if folder is not None:
        path = Path(folder).expanduser() / name
        if not path.is_file():
            raise FileNotFoundError(
                f"There is no file {name} in {folder}: put it there, or leave the folder out to "
                "have it downloaded."
            )
        return path
    given = os.environ.get("MOSSP_DATA")
    for place in (Path(given).expanduser() if given else None, cache_folder()):
        if place is not None and (place / name).is_file():
            return place / name
    return download(name)


def cache_folder() -> Path:
    own, base = folders.named(), os.environ.get("XDG_CACHE_HOME")
    return (Path(own) if own else Path(base or Path.home() / ".cache") / "mossp") / "data"


def download(name: str) -> Path:
    try:
        import pooch
    except ImportError:
        raise ImportError(
            f"To download {name}, pooch is needed: pip install 'mossp[cli]'; or put the file into "
            f"{cache_folder()}."
        ) from None
    # Counts and labels are checked, which says more than a checksum does when they differ.
    try:
        got = pooch.retrieve(
            SITE + name, known_hash=None, fname=name, path=cache_folder(), progressbar=False
        )
    except Exception as error:
        raise OSError(
            f"{name} could not be downloaded from {SITE}{name} "
            f"({type(error).__name__}): without a network, put the file into {cache_folder()}, "
            "or name its folder with --data-dir or MOSSP_DATA."
        ) from error
    return Path(got)


def check(known: Known, name: str, X: scipy.sparse.csr_matrix, y: np.ndarray, path: Path) -> None:
    values, counts = np.unique(y, return_counts=True)
    found = Known(X.shape[0], X.shape[1], int(X.nnz), dict(zip(values.tolist(), counts.tolist(),
                                                              strict=True)))  # fmt: skip
    for what in Known._fields:
        if getattr(found, what) != getattr(known, what):
            raise DataError(
                f"this is not the data set {name}: it has {what} {getattr(found, what)}, where "
                f"{getattr(known, what)} is right; delete it to have it downloaded again", path,
            )  # fmt: skip
