"""What all tests share, the examples in docstrings included."""

import sys

import pytest


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """A module's programs serve no other, and a process can map only so many of them."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
