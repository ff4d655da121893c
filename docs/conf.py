"""Sphinx: `make docs` builds the pages and runs the examples."""

from __future__ import annotations

import re
from importlib import metadata

project = "mossp"
author = "the mossp authors"
release = version = metadata.version("mossp")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
exclude_patterns = ["build", "**/GALLERY_HEADER.rst"]
nitpicky = False

myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the signature's own are enough, and docstrings say the rest
autodoc_member_order = "bysource"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "mossp"
html_static_path = ["_static"]
html_css_files = ["mossp.css"]
html_show_sourcelink = False
# One level of pages needs no tree beside it; the reference and the gallery have one.
ALONE = (
    "index tutorial certificate faq estimators command-line torch exact extending regularizers "
    "methods paper reproduce"
)
html_sidebars: dict[str, list[str]] = {name: [] for name in ALONE.split()}
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 4,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def as_it_is_written(app, what, name, obj, options, lines) -> None:
    """Docstrings are plain text, tables and equations in their own layout, and stay so.

    The first paragraph is prose; examples become code; the rest is shown as it stands.
    """
    text = "\n".join(lines).strip("\n")
    head, _, rest = text.partition("\n\n")
    shown = [re.sub(r"([*|\\_])", r"\\\1", line).replace("`", "``") for line in head.split("\n")]
    block: list[str] = []
    in_example = False

    def flush() -> None:
        while block and not block[-1].strip():
            block.pop()
        while block and not block[0].strip():
            block.pop(0)
        if block:
            kind = "pycon" if in_example else "text"
            shown.extend(["", f".. code-block:: {kind}", "", *(f"   {b}" for b in block), ""])
            block.clear()

    for line in rest.split("\n"):
        starts = line.lstrip().startswith(">>>")
        ends = in_example and not line.strip()
        if starts and not in_example:
            flush()
            in_example = True
        elif ends:
            flush()
            in_example = False
        block.append(line)
    flush()
    lines[:] = [*shown, ""]


def setup(app) -> None:
    app.connect("autodoc-process-docstring", as_it_is_written)
