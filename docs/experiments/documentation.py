"""Do the recipes of docs/pictures-and-tables.md work? Builds a site with each, and looks for the pictures in it.

python docs/experiments/documentation.py RESULTS BIN    # BIN/mkdocs (with Material), BIN/sphinx-build (MyST, Furo)
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

import gpubench

MKDOCS = """site_name: x
theme:
  name: material
  palette:
    - scheme: default
      toggle: {icon: material/weather-night, name: Dark}
    - scheme: slate
      toggle: {icon: material/weather-sunny, name: Light}
markdown_extensions: [tables, pymdownx.snippets]
exclude_docs: speed.md
"""
SPHINX = 'extensions = ["myst_parser"]\nhtml_theme = "furo"\nexclude_patterns = ["speed.md"]\n'
MATERIAL = '# x\n\n![Speedup](speed.svg#only-light)\n![Speedup](speed-dark.svg#only-dark)\n\n--8<-- "docs/speed.md"\n'
FURO = "# x\n" + "".join(
    f"\n```{{image}} {name}.svg\n:alt: Speedup\n:class: only-{theme}\n```\n"
    for theme, name in (("light", "speed"), ("dark", "speed-dark"))
)


def build(name: str, folder: Path, page: str, settings: tuple[str, str], command: list[str], results: str) -> None:
    """Build a site of one page; exit unless both pictures are in it, each with its theme, and in Material the table."""
    sources = folder / "docs"
    sources.mkdir(parents=True)
    (folder / settings[0]).write_text(settings[1], encoding="utf-8")
    (sources / "index.md").write_text(page, encoding="utf-8")
    picture = gpubench.load(results).chart("speedup")
    picture.save(sources / "speed.svg")
    picture.save(sources / "speed-dark.svg", theme="dark")
    (sources / "speed.md").write_text("| a | b |\n|---|---|\n| 1 | 2 |\n", encoding="utf-8")
    subprocess.run(command, cwd=folder, check=True)
    html = (folder / "site/index.html").read_text(encoding="utf-8")
    shown = re.findall(r"<img[^>]+>", html)
    for theme in ("light", "dark"):
        (tag,) = (tag for tag in shown if f"only-{theme}" in tag)
        (source,) = re.findall(r'src="([^"#]+)', tag)
        if not (folder / "site" / source).is_file():
            raise SystemExit(f"{name}: {source} isn't in the site")
    if page == MATERIAL and not re.search(r'<body[^>]+data-md-color-scheme="default".*<table', html, re.DOTALL):
        raise SystemExit(f"{name}: without a colour scheme both pictures show, or the table isn't included")
    if (folder / "site/speed").exists():
        raise SystemExit(f"{name}: the table is a page of its own")
    print(f"{name}: both pictures are in the site")


def main() -> None:
    """Build both sites."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("bin", type=Path)
    given = parser.parse_args()
    programs, results = given.bin.resolve(), str(Path(given.results).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        mkdocs = [str(programs / "mkdocs"), "build", "--strict", "--quiet"]
        build("MkDocs Material", Path(scratch, "a"), MATERIAL, ("mkdocs.yml", MKDOCS), mkdocs, results)
        sphinx = [str(programs / "sphinx-build"), "-W", "-q", "-c", ".", "docs", "site"]
        build("Sphinx, MyST, Furo", Path(scratch, "b"), FURO, ("conf.py", SPHINX), sphinx, results)


if __name__ == "__main__":
    main()
