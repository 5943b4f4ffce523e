"""How the site is made: `make site` renders README, documents and docstrings to build/site.

The source is the whole repository, so that every link of a document leads where it leads in the
repository. Nothing is fetched to build it, nor to read it.
"""

import sys
from pathlib import Path
from typing import Any

import cmbpo

# Where site_parts is.
sys.path.insert(0, str(Path(__file__).parent))

project = "cmbpo"
author = "The cmbpo developers"
copyright = author
version = release = cmbpo.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "site_parts"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "docs/first_run.ipynb",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "results/NOTEBOOK.md",
]
exclude_patterns = [".*", "build", "dist", "runs", "src", "tests", "results/*-*", "results/bench"]

# GitHub's anchors, so that a link to a heading is the same in both places.
myst_heading_anchors = 4
# Code without a language is a terminal, a formula or a drawing, none of them Python.
highlight_language = "none"

autodoc_member_order = "bysource"
# Types as Sphinx spells them (ArrayLike in four lines) hide what is called how.
autodoc_typehints = "none"
autodoc_preserve_defaults = True
autoclass_content = "both"
# Docstrings are written as Markdown: one backtick is code.
default_role = "code"

html_theme = "furo"
html_title = f"cmbpo {release}"
html_static_path = ["site_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def setup(app: Any) -> None:
    """The first page also stands where a web server looks for it."""
    app.connect("build-finished", _first_page)


def _first_page(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        away = '<!doctype html><meta charset="utf-8"><title>cmbpo</title>'
        away += '<meta http-equiv="refresh" content="0; url=docs/index.html">'
        away += '<a href="docs/index.html">cmbpo</a>\n'
        (Path(app.outdir) / "index.html").write_text(away, encoding="utf-8")
