"""Fixtures that tests of several rooms share."""

import jax
import pytest


@pytest.fixture
def x64():
    """JAX with doubles. A file all of whose tests need it: pytest.mark.usefixtures("x64")."""
    with jax.enable_x64(True):
        yield
