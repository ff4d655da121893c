"""The README's examples run and print what they say."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def run(block: str) -> list[str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {})
    return printed.getvalue().splitlines()


def test_first_example_prints_the_answer_that_is_stated():
    lines = run(BLOCKS[0])
    stated = re.findall(r"print\(.*?\)\s*# (.*)", BLOCKS[0])
    assert len(lines) == len(stated) == 4
    assert lines[:2] == stated[:2]
    assert float(lines[2]) == pytest.approx(0.4, abs=5e-3) and stated[2].startswith("0.40")
    assert lines[3] == stated[3]


def test_sphere_example_converges_and_finds_the_support():
    lines = run(BLOCKS[1])
    assert lines[0].startswith("CONVERGED")
    support = [int(number) for number in re.findall(r"\d+", lines[-1])]
    assert {0, 1} <= set(support) and len(support) < 30


def test_files_that_the_readme_names_exist():
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
