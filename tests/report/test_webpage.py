"""report.html as text: whole, equal for equal input, closed to the network and to hostile names."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import records

from gpubench.commands.cli import main
from gpubench.runfile.schema import Case

HOSTILE = ("</script><img src=x onerror=alert(1)>", "${data}", "<!--", "=1+1", "n" * 300)


def page(tmp_path: Path, *workloads: str) -> str:
    marks = [
        records.benchmark(Case(workload, device, "float32", {"n": n}, size="n", devices=(device,)), time * n)
        for workload in workloads
        for device, time in (("cpu", 1e-6), ("cuda:0", 1e-7))
        for n in (1, 10)
    ]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU))))
    assert main(["report", str(path), "-o", str(tmp_path / "out"), "--no-charts"]) == 0
    return (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Every element and its attributes, and the text of each style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.inside = True
        self.found.append((tag, dict(attributes)))
        self.texts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.texts and self.inside:
            self.texts[-1] += data


def test_the_policy_allows_its_own_style_and_script_and_nothing_else(tmp_path: Path) -> None:
    tags = Tags(page(tmp_path, "aa.mm"))
    policy = next(given["content"] for _, given in tags.found if given.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "*" not in policy
    texts = {(tag, given.get("type")): text for (tag, given), text in zip(tags.found, tags.texts, strict=True)}
    for directive, key in (("style-src", ("style", None)), ("script-src", ("script", None))):
        digest = base64.b64encode(hashlib.sha256(texts[key].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def test_nothing_is_fetched(tmp_path: Path) -> None:
    tags = Tags(page(tmp_path, "aa.mm"))
    assert not [given for _, given in tags.found if "src" in given or "style" in given]
    links = [given["href"] for tag, given in tags.found if tag in ("a", "link") and given.get("href")]
    assert links
    assert all(re.fullmatch(r"#[a-z]+|[a-z]+\.(csv|md)", link) for link in links)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text(tmp_path: Path, name: str) -> None:
    text = page(tmp_path, name)
    tags = Tags(text)
    assert [tag for tag, _ in tags.found if tag in ("img", "iframe", "object")] == []
    assert [tag for tag, _ in tags.found].count("script") == 2
    data = next(t for (_, given), t in zip(tags.found, tags.texts, strict=True) if given.get("id") == "data")
    assert any(name[:30] in entry for entry in json.loads(data)["strings"])


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    assert page(first, "aa.mm") == page(second, "aa.mm")
