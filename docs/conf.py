"""The documentation site: ``tox run -e docs``, and why it is made this way.

Sphinx reads the pages as they lie in the repository, from its root, so that a link works here as on GitHub: to a page
of results, to the contributing guide, to a script. It writes plain files that fetch nothing from elsewhere, and its
search works without a server.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpubench.report.charts.theme import DARK, recolour  # noqa: E402
from gpubench.runfile.version import __version__  # noqa: E402

REPOSITORY = (
    "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}".format_map(os.environ) if "GITHUB_REPOSITORY" in os.environ else ""
)
"""Known where a workflow builds the site. Elsewhere scripts that a page names are copied into the site."""

project, copyright = "gpubench", "The gpubench developers"
version = release = __version__
html_title = "gpubench"
root_doc = "docs/getting-started"
include_patterns = ["docs/*.md", "results/*/summary.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = [".*", "build", "dist", "out*", "venv"]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
nitpicky = True  # a reference that leads nowhere fails, also in a docstring
_UNLISTED = r"(collections\.abc|np|numpy|os|pd|torch)\..+|.+\._\w+|Sizes|dict\[int|gpubench\.(measure|devices)\..+"
nitpick_ignore_regex = [("py:class", _UNLISTED)]  # types of others, and of signatures that nobody writes
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4  # the names that GitHub gives to headings
autodoc_mock_imports = ["torch", "numpy", "pandas", "scipy", "matplotlib", "psutil", "pytest", "rich"]
autodoc_class_signature = "separated"
autodoc_default_options = {"exclude-members": "__init__, __new__"}  # nobody constructs these by hand
autodoc_member_order = "bysource"

html_theme = "furo"
html_use_index = html_domain_indices = False
html_search_scorer = str(ROOT / "docs/site/scorer.js")
html_copy_source = False
html_static_path = ["site/site.css"]
html_css_files = ["site.css"]
templates_path = ["site/templates"]
html_additional_pages = {"index": "start.html"}  # the address of the site leads to the front page
pygments_style, pygments_dark_style = "github-light-high-contrast", "github-dark-high-contrast"


def add_dark_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Beside each of our pictures the same one for a dark page; the theme shows one of them."""
    for light in list(doctree.findall(nodes.image)):
        path = Path(app.env.relfn2path(light["uri"])[1])
        if path.suffix == ".svg" and path.exists():
            made = Path(app.doctreedir, "dark", path.relative_to(ROOT)).with_stem(f"{path.stem}-dark")
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(recolour(path.read_bytes(), DARK))
            dark = light.deepcopy()
            dark["uri"] = "/" + os.path.relpath(made, app.srcdir)
            light["width"] = dark["width"] = "100%"  # the theme makes it a link to the picture by itself
            light["classes"].append("only-light")
            dark["classes"].append("only-dark")
            light.parent.insert(light.parent.index(light) + 1, dark)


def link_to_repository(app: Sphinx, doctree: nodes.document) -> None:
    """Scripts are read in the repository rather than downloaded, where its address is known."""
    for node in list(doctree.findall(download_reference)) if REPOSITORY else []:
        path = Path(app.env.relfn2path(node["reftarget"])[1]).relative_to(ROOT)
        node.replace_self(nodes.reference("", "", *node.children, refuri=f"{REPOSITORY}/blob/main/{path.as_posix()}"))


def install_from_repository(app: Sphinx, name: str, source: list[str]) -> None:
    """Where the repository's address is known, the front page's first command needs no checkout, and its notebook opens
    in Colab."""
    if name == root_doc and REPOSITORY:
        colab = (
            f"https://colab.research.google.com/github/{os.environ['GITHUB_REPOSITORY']}/blob/main/docs/tutorial.ipynb"
        )
        text = source[0].replace(", in a checkout", "").replace("install .", f"install git+{REPOSITORY}")
        source[0] = text.replace("[notebook](tutorial.ipynb)", f"[notebook](tutorial.ipynb), also [in Colab]({colab}),")


def complete_pages(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """What an accessibility checker misses in the theme: the level of the navigation's headings, and that code and
    tables that are wider than the page can be scrolled without a mouse."""
    navigation = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = navigation.replace('role="heading"', 'role="heading" aria-level="2"')
    if "body" in context:
        context["body"] = re.sub(r'<(pre(?=>)|div(?= class="table-wrapper))', r'<\1 tabindex="0"', context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", install_from_repository)
    app.connect("doctree-read", add_dark_pictures, priority=400)  # before pictures and files are collected
    app.connect("doctree-read", link_to_repository, priority=400)
    app.connect("html-page-context", complete_pages, priority=900)  # after the theme
    return {"parallel_read_safe": True}
