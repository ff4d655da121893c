"""Sphinx: `make docs` builds the pages and runs the examples."""

from __future__ import annotations

from importlib import metadata

project = "mossp"
author = "the mossp authors"
release = version = metadata.version("mossp")

extensions = [
    "myst_parser",
    "numpydoc",
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
autosummary_filename_map = {"mossp.Path": "mossp.Path-class"}  # beside mossp.path, in any folder
numpydoc_show_class_members = False  # autodoc lists them
default_role = "code"  # `x` in a docstring is code
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
    "index tutorial certificate faq estimators command-line data-constraints torch exact extending "
    "regularizers methods paper reproduce compared concave scale reliability architecture"
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
