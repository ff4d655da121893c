"""BLAS on one thread, and on all of them for large products."""

import numpy as np
import pytest
import threadpoolctl

from mossp._base.threads import LARGE, Limit, controller, limit
from mossp.newton.table import Table


def counts():
    return {library.num_threads for library in controller().lib_controllers}


@pytest.fixture
def two_threads():
    controller()  # which loads the libraries
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if counts() != {2}:
            pytest.skip("this BLAS has one thread")
        yield


def test_one_thread_is_a_loan(two_threads):
    with limit.one():
        assert counts() == {1}
        with limit.one():
            assert counts() == {1}
        assert counts() == {1}
    assert counts() == {2}


def test_the_last_user_gives_it_back(two_threads):
    one = Limit()
    first, second = one.one(), one.one()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert counts() == {1}
    second.__exit__(None, None, None)
    assert counts() == {2}


def test_large_products_have_all_threads(two_threads):
    one, seen = Limit(), []
    with one.one():
        for size in (LARGE - 1, LARGE):
            with one.for_product(size):
                seen.append(counts())
            assert counts() == {1}
    assert seen == [{1}, {2}] and counts() == {2}
    with one.for_product(LARGE):
        assert counts() == {2}


def test_tables_ask_by_the_size_of_their_products(monkeypatch):
    asked = []
    for_product = limit.for_product

    def noted(size):
        asked.append(size)
        return for_product(size)

    monkeypatch.setattr(limit, "for_product", noted)
    table = Table(np.ones((5, 3)), True)
    table.times(np.ones((4, 2)))
    table.transposed(np.ones((5, 2)))
    table.gram(np.ones(5), np.arange(4))
    assert asked == [5 * 3 * 2, 5 * 3 * 2, 5 * 4 * 4]
