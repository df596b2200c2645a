"""The card that is attached to an issue, downloaded: ``python .github/card_of_issue.py FILE`` in a workflow.

Anybody may write an issue. Of its text one address is taken, if it is one that GitHub gives to attachments; the text
never reaches a shell, and what is downloaded isn't used before ``gpubench check`` has read it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

LINK = re.compile(r"https://github\.com/user-attachments/files/[0-9]{1,20}/[A-Za-z0-9._-]{1,200}\.json(?![\w./%?#-])")
LICENCE = re.compile(r"^- \[[xX]\] [^\n]*CC0", re.MULTILINE)
LARGEST = 2_000_000


def link_of(text: str) -> str:
    """The address of the one card. Raises SystemExit with a sentence for whoever wrote the issue."""
    links = sorted(set(LINK.findall(text)))
    if not LICENCE.search(text):
        raise SystemExit("The box about the licence (CC0) isn't ticked.")
    if len(links) != 1:
        raise SystemExit(f"Expected one attached card, a file *.json of gpubench share, and found {len(links)}.")
    return links[0]


def main() -> None:
    """Write the card to the file that is named."""
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    with urllib.request.urlopen(link_of(event["issue"]["body"] or ""), timeout=60) as answer:
        content = answer.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise SystemExit(f"The file is larger than {LARGEST // 1_000_000} MB: attach the card, not the results file.")
    Path(sys.argv[1]).write_bytes(content)


if __name__ == "__main__":
    main()
