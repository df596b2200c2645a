"""What pyproject.toml can't say: where the project lies, which the workflow that releases it knows, and the README as a
package index shows it, where relative links lead nowhere."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent
SOURCE = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}".format_map(os.environ) if "GITHUB_REPOSITORY" in os.environ else ""
PAGES = {"Source": "", "Issues": "/issues", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md"}


def absolute_links(text: str, source: str) -> str:
    """``source`` is the address of the repository on GitHub: pages are under blob/, pictures under raw/, the light one
    of two. Where there is none, links become plain text."""

    def completed(link: re.Match[str]) -> str:
        sign, shown, target = link.groups()
        if re.match(r"\w+:|#", target):
            return link[0]
        kind = "raw" if sign else "blob"
        return f"{sign}[{shown}]({source.rstrip('/')}/{kind}/main/{target})" if source else "" if sign else shown

    text = re.sub(r'<picture>.*?<img src="(.+?)" alt="(.+?)"></picture>', r"![\2](\1)", text, flags=re.DOTALL)
    return re.sub(r"(!?)\[([^]]*)\]\(([^)]+)\)", completed, text)


if __name__ == "__main__":
    from setuptools import setup

    setup(
        long_description=absolute_links((ROOT / "README.md").read_text(encoding="utf-8"), SOURCE),
        long_description_content_type="text/markdown",
        project_urls={name: SOURCE + page for name, page in PAGES.items()} if SOURCE else {},
    )
