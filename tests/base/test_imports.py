"""What `import mossp` brings with it: nothing that takes long and is not needed at once."""

import ast
import importlib
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import mossp
from mossp._base import later

LATER = ("scipy.linalg", "scipy.optimize", "scipy.sparse", "scipy.special", "numpy.f2py")
WAITS = ("mossp.solving", "mossp.methods", "mossp.newton", "mossp.report", "mossp.examples")
FILES = ("mossp.data.on_disk", "mossp.data.sharded", "mossp.data.libsvm", "mossp.data.sets")


def brought(statement):
    """The modules that a process has after the statement, but for those that JAX brings."""
    code = f"import sys, jax; before = set(sys.modules); {statement}; "
    code += "print(*(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


@pytest.fixture(scope="module")
def imported():
    return brought("import mossp")


@pytest.fixture(scope="module")
def all_of_it():
    return brought("from mossp import *")


@pytest.mark.parametrize("module", LATER)
def test_parts_that_take_long_are_imported_where_they_are_first_used(all_of_it, module):
    assert "mossp.solving.solve" in all_of_it and module not in all_of_it


@pytest.mark.parametrize("module", WAITS)
def test_what_solves_waits_for_its_first_use(imported, all_of_it, module):
    assert "mossp.problem" in imported
    assert module in all_of_it and module not in imported


@pytest.mark.parametrize("module", FILES)
def test_what_reads_files_waits_even_where_problems_are_solved(module):
    assert module not in brought("import mossp; mossp.solve")


@pytest.mark.parametrize("begin", ["", "import gc; gc.disable(); "])
def test_imports_leave_the_collection_of_garbage_as_it_was(begin):
    code = begin + "import gc; before = gc.isenabled(); import mossp; mossp.solve; "
    code += "mossp.data.Sharded; print(before == gc.isenabled())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"


def packages():
    yield mossp
    yield mossp.data
    pytest.importorskip("sklearn", reason="scikit-learn is optional")
    yield importlib.import_module("mossp.sklearn")


def told_to_checkers(package):
    """The names that a package imports under TYPE_CHECKING, by module."""
    tree = ast.parse(Path(package.__file__).read_text())
    branch = next(n for n in tree.body if isinstance(n, ast.If))
    return {node.module: {alias.name for alias in node.names} for node in branch.body}


def test_static_checkers_are_told_what_is_found_when_it_is_used(monkeypatch):
    tables = {}

    def note(package, names, modules=""):
        tables[package] = {module: set(text.split()) for module, text in names.items()}
        tables[package] |= {package: set(modules.split())} if modules else {}
        return attributes(package, names, modules)

    attributes = later.attributes
    monkeypatch.setattr(later, "attributes", note)
    for package in packages():
        source = compile(Path(package.__file__).read_text(), package.__file__, "exec")
        exec(source, {"__name__": package.__name__, "__package__": package.__name__})
        assert tables[package.__name__] == told_to_checkers(package)


def test_every_public_name_is_found_and_listed():
    for package in packages():
        found = {name: getattr(package, name) for name in package.__all__}
        assert len(found) == len(package.__all__) and set(found) <= set(dir(package))


def test_no_module_is_hidden_by_a_name_of_its_package():
    for package in packages():
        modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
        names = {name for those in told_to_checkers(package).values() for name in those}
        for name in names & modules:
            assert getattr(package, name) is sys.modules[f"{package.__name__}.{name}"]


def test_pickles_know_where_names_are():
    for value in (mossp.solve, mossp.Status.CONVERGED, mossp.MoSSP()):
        assert pickle.loads(pickle.dumps(value)) == value


def test_a_name_that_is_not_there_is_said():
    with pytest.raises(AttributeError, match=r"module 'mossp' has no attribute 'solv'"):
        mossp.solv
    with pytest.raises(ImportError, match="cannot import name 'Sovle' from 'mossp'"):
        exec("from mossp import Sovle")
