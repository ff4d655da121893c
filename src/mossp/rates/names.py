"""The rates by name, each over all rows or over a group."""

from __future__ import annotations

from collections.abc import Mapping

from mossp._base.printing import shown
from mossp.rates.algebra import Condition, Elementary, Rate, value_text


def elementary(
    name: str, class_: object, group: Mapping[str, object] | None, columns: Mapping[str, object]
) -> Rate:
    """A rate of a class over a group, as the functions below make it."""
    if group is not None and not isinstance(group, Mapping):
        raise TypeError(
            f'The group of a rate is a mapping such as {{"sex": "F"}}, but {shown(group)} was '
            "given."
        )
    both = {**(group or {}), **columns}
    for column in both:
        if not isinstance(column, str) or not column:
            raise TypeError(f"The name of a column must be text, but {shown(column)} was given.")
    if "class" in both:
        class_ = both.pop("class")
    chosen = [] if class_ is None else [Condition("class", value_text(class_))]
    chosen += [Condition(column, value_text(value)) for column, value in both.items()]
    return Rate(((Elementary(name, tuple(chosen)), 1.0),))


def selection(
    group: Mapping[str, object] | None = None, *, class_: object = None, **columns: object
) -> Rate:
    """The share of rows that are decided for the class: the positive rate.

    Parameters
    ----------
    group : mapping, optional
        Columns and their values, which a row must have to count: {"sex": "F"}. Columns whose names
        are plain words may be given as keywords instead.
    class_ : optional
        The class in question; left out, the second of two.

    Examples
    --------
    >>> print(selection(sex="F"), selection({"marital status": "single"}, class_="yes"))
    selection[sex=F] selection[class=yes, 'marital status'=single]
    """
    return elementary("selection", class_, group, columns)


def tpr(
    group: Mapping[str, object] | None = None, *, class_: object = None, **columns: object
) -> Rate:
    """The share of the class's rows that are decided for it; the arguments of `selection`.

    Examples
    --------
    >>> print(tpr({"sex": "F"}) >= 0.8)
    tpr[sex=F] >= 0.8
    """
    return elementary("tpr", class_, group, columns)


def fpr(
    group: Mapping[str, object] | None = None, *, class_: object = None, **columns: object
) -> Rate:
    """The share of the other rows that are decided for the class; the arguments of `selection`.

    Examples
    --------
    >>> print(fpr() <= 0.05)
    fpr <= 0.05
    """
    return elementary("fpr", class_, group, columns)


def tnr(
    group: Mapping[str, object] | None = None, *, class_: object = None, **columns: object
) -> Rate:
    """1 - fpr; the arguments of `selection`.

    Examples
    --------
    >>> print(tnr() >= 0.95)
    tnr >= 0.95
    """
    return elementary("tnr", class_, group, columns)


def fnr(
    group: Mapping[str, object] | None = None, *, class_: object = None, **columns: object
) -> Rate:
    """1 - tpr; the arguments of `selection`.

    Examples
    --------
    >>> print(abs(fnr(sex="F") - fnr(sex="M")) <= 0.02)
    |fnr[sex=F] - fnr[sex=M]| <= 0.02
    """
    return elementary("fnr", class_, group, columns)


def precision(
    group: Mapping[str, object] | None = None, *, class_: object = None, **columns: object
) -> Rate:
    """The share of the class among rows decided for it; bounded alone and by a number.

    The arguments are those of `selection`.

    Examples
    --------
    >>> print(precision() >= 0.9)
    precision >= 0.9
    """
    return elementary("precision", class_, group, columns)


def accuracy(
    group: Mapping[str, object] | None = None, *, class_: object = None, **columns: object
) -> Rate:
    """The share of rows that are decided right; of a class against the rest if one is named.

    The arguments are those of `selection`.

    Examples
    --------
    >>> print(accuracy(sex="F") >= accuracy(sex="M") - 0.02)
    accuracy[sex=F] - accuracy[sex=M] >= -0.02
    """
    return elementary("accuracy", class_, group, columns)


def mean_loss(
    group: Mapping[str, object] | None = None, *, class_: object = None, **columns: object
) -> Rate:
    """The mean of the model's loss over the rows of a group, or of a class.

    The arguments are those of `selection`.

    Examples
    --------
    >>> print(mean_loss(sex="F") <= 0.4)
    mean loss[sex=F] <= 0.4
    """
    return elementary("mean loss", class_, group, columns)
