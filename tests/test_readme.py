"""The examples of the README and of the pages in docs/ run and print what they say."""

import contextlib
import io
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


BLOCKS = blocks(README)
IN_DOCS = [(page.name, block) for page in PAGES[1:] for block in blocks(page)]


def run(block: str) -> list[str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {})
    return printed.getvalue().splitlines()


def test_the_first_screen_prints_what_it_states():
    pytest.importorskip("sklearn", reason="the estimators need scikit-learn")
    assert run(BLOCKS[0]) == re.findall(r"print\(.*\)\s*# (.*)", BLOCKS[0])


def test_the_readme_is_short():
    assert len(README.read_text("utf-8").splitlines()) <= 150


def test_the_example_to_check_by_hand_prints_the_answer_that_is_stated():
    lines = run(BLOCKS[1])
    stated = re.findall(r"print\(.*?\)\s*# (.*)", BLOCKS[1])
    assert len(lines) == len(stated) == 4
    assert lines[:2] == stated[:2]
    assert float(lines[2]) == pytest.approx(0.4, abs=5e-3) and stated[2].startswith("0.40")
    assert lines[3] == stated[3]


@pytest.mark.parametrize(("page", "block"), IN_DOCS, ids=[page for page, _ in IN_DOCS])
def test_examples_in_docs_print_what_they_state(page, block):
    """A comment after print(...) is the line printed; "..." stands for the rest of it."""
    if "import torch" in block:
        pytest.importorskip("torch", reason="torch is an optional dependency")
    stated = re.findall(r"print\(.*\)\s*# (.*)", block)
    lines = run(block)
    assert len(lines) == len(stated) > 0
    for line, text in zip(lines, stated, strict=True):
        assert line.startswith(text.removesuffix("...").rstrip()) if "..." in text else line == text


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_files_that_a_page_names_exist(page):
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("gallery/"):  # made from the scripts
            target = f"../examples/{Path(target).name}.py".replace("index.py", "GALLERY_HEADER.rst")
        if target.startswith("../../actions/workflows/"):  # of the host: runs of a workflow
            target = f".github/workflows/{target.split('/')[4]}"
        assert (page.parent / target).exists(), target


def test_examples_name_what_they_show():
    """Scripts are run by `make examples` and `make docs`; here, that each is a page."""
    scripts = sorted((ROOT / "examples").glob("*.py"))
    assert len(scripts) >= 8
    for script in scripts:
        text = script.read_text("utf-8")
        compile(text, str(script), "exec")
        assert text.startswith('"""\n') and "\n====" in text and "# %%" in text and "assert" in text


EXAMPLES = ("neyman_pearson", "unmixing")


@pytest.mark.parametrize("name", EXAMPLES)
def test_quick_examples_run(name, monkeypatch):
    """The others take longer; they are run with the docs."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    import matplotlib

    matplotlib.use("agg")
    text = (ROOT / "examples" / f"{name}.py").read_text("utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, name, "exec"), {"__name__": name})
    matplotlib.pyplot.close("all")
