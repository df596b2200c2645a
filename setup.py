"""What pyproject.toml can't say: the README as a package index shows it, where relative links lead nowhere."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent
SOURCE = "Source"
"""The entry of ``[project.urls]`` that links are completed with. Without one they become plain text."""


def absolute_links(text: str, source: str | None) -> str:
    """``source`` is the address of the repository, on GitHub: pages are under blob/, pictures under raw/."""

    def completed(link: re.Match[str]) -> str:
        sign, shown, target = link.groups()
        if re.match(r"\w+:|#", target):
            return link[0]
        kind = "raw" if sign else "blob"
        return f"{sign}[{shown}]({source.rstrip('/')}/{kind}/main/{target})" if source else "" if sign else shown

    return re.sub(r"(!?)\[([^]]*)\]\(([^)]+)\)", completed, text)


if __name__ == "__main__":
    from setuptools import setup

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=absolute_links(readme, project.get("urls", {}).get(SOURCE)),
        long_description_content_type="text/markdown",
    )
