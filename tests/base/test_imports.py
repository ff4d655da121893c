"""What `import mossp` brings with it: nothing that takes long and is not needed at once."""

import subprocess
import sys

import pytest

LATER = ("scipy.linalg", "scipy.optimize", "scipy.sparse", "scipy.special", "numpy.f2py")


@pytest.fixture(scope="module")
def imported():
    """The modules that a process has after the import, but for those that JAX brings."""
    code = "import sys, jax; before = set(sys.modules); import mossp; "
    code += "print(*(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


@pytest.mark.parametrize("module", LATER)
def test_parts_that_take_long_are_imported_where_they_are_first_used(imported, module):
    assert "mossp.solving.solve" in imported and module not in imported
