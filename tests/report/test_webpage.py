"""report.html as text: whole, equal for equal input, closed to the network and to hostile names."""

import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser

import pytest
import records
from reading import answered, study_of
from records import run, sweep

from gpubench.report.charts import pictures
from gpubench.report.charts.theme import LIGHT, colour
from gpubench.report.render import Table
from gpubench.report.webpage import webpage

HOSTILE = ("</script><img src=x onerror=alert(1)>", "{{ 7 * 7 }}", "<!--", "=1+1", "n" * 300)


class Tags(HTMLParser):
    """Every element with its attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def all(self, name, key):
        return [given[key] for tag, given in self.found if tag == name and key in given]


def page(*runs, charts=True):
    answer = answered(*runs)
    drawings, by_size, failed = pictures.of_report(answer, every=False) if charts else ([], [], [])
    assert failed == []
    return webpage(answer, drawings, by_size, "1.2.3")


@pytest.fixture(scope="module")
def suite():
    return page(records.Made(records.gpu_run(3), "", 3).read())


def test_the_policy_allows_the_page_s_own_style_and_script_alone(suite):
    (policy,) = (given["content"] for _, given in Tags(suite).found if given.get("http-equiv"))
    parts = re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", suite, re.DOTALL)
    style, script = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
    own = f"style-src 'sha256-{style}'; script-src 'sha256-{script}'"
    assert policy == f"default-src 'none'; {own}; base-uri 'none'"


def test_nothing_is_fetched_and_every_id_is_unique(suite):
    tags = Tags(suite)
    assert not [given for _, given in tags.found if {"style", "src", "srcset"} & given.keys()]
    links = [given["href"] for tag, given in tags.found if tag != "use" and "href" in given]
    assert links
    assert all(re.fullmatch(r"#[a-z-]+|[a-z]+\.(csv|md)", link) for link in links)
    ids = [given["id"] for _, given in tags.found if "id" in given]
    assert len(ids) == len({*ids})
    used = {*re.findall(r"url\(#([^)]+)\)", suite), *(href[1:] for href in tags.all("use", "href"))}
    assert used
    assert used <= {*ids}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text(name):
    tags = Tags(page(sweep(name)))
    assert [tag for tag, _ in tags.found].count("script") == 1
    assert not [tag for tag, _ in tags.found if tag in ("img", "iframe", "object")]
    assert name[:20] in tags.text.replace("…", "")


def test_equal_input_gives_an_equal_page(suite):
    assert page(records.Made(records.gpu_run(3), "", 3).read()) == suite


def test_the_head_names_devices_date_and_versions(suite):
    head = suite.partition("<nav")[0]
    assert ('<span class="whole">2026-01-31</span>' in head, " · PyTorch" in head) == (
        True,
        False,
    )  # no line ends there
    head = head.replace("\u00a0", " ")
    facts = "Synthetic H", "Synthetic CPU, 2 threads", "PyTorch 2.13.0", "gpubench 0.1.0", "2026-01-31", "3 processes"
    assert [fact for fact in facts if fact not in head] == []
    assert "<title>Benchmark report: Synthetic H, Synthetic</title>" in suite


def test_the_head_names_every_machine():
    text = page(*(run(f"m{i}", cuda=0).bench("a.b", cpu=1.0) for i in range(8)), charts=False)
    assert (text.count("Synthetic CPU") >= 6, '<p class="muted">and m6, m7</p>' in text) == (True, True)


def test_no_line_ends_between_a_sign_and_its_number():
    one = run().bench("a.x", cpu=(2e-4, 1e-3, 5e-3), flags=("contended",)).bench("a.x", gpu=(1e-6,) * 3)
    assert "<strong>≥\u00a0" in page(one, charts=False)


def test_a_section_that_would_be_empty_is_left_out():
    every = ["answer", "pictures", "by-size", "numbers", "details"]
    assert re.findall(r'<section id="([\w-]+)"', page(sweep("aa.mm", one=sweep()))) == every
    one = run(cuda=0, processes=1)
    for i in range(3):
        one.bench(f"mine.w{i}", cpu="1 ms", n=None, device="", dtype="", devices=())
    for text in (page(one, charts=False), page(one.skip("mine.x"), charts=False)):
        assert re.findall(r'<section id="([\w-]+)"', text) == ["answer", "numbers", "details"]
        assert re.findall(r'<a href="#([\w-]+)"', text) == ["answer", "numbers", "details"]


# Pictures -------------------------------------------------------------------------------------------------------------


def test_a_picture_is_its_panels_in_colours_of_both_themes(suite):
    style, panels = re.findall(r"<style>(.*?)</style>", suite, re.DOTALL)[0], re.findall(r"<svg.*?</svg>", suite)
    assert len(panels) >= 8
    assert not re.search(r" style=|font-family|#[0-9a-f]{6}\b", "".join(panels))
    boxes = re.findall(r'<svg viewBox="(\d+) [^"]*" role="img"', suite)  # names begin where the text of the page does
    assert {*boxes} == {"15"}
    variables = {*re.findall(r"var\((--\w+)\)", "".join(panels))}
    assert f"--{colour(LIGHT, 'accelerator0')[1:]}" in variables
    assert all(f"{name}: light-dark(" in style for name in variables)


def test_titles_findings_legends_and_small_print_are_text_of_the_page():
    study = study_of(sweep(one=sweep("other.work")))
    (headline, *_), _ = pictures.drawn(pictures.plan(study)[0])
    text, figure = page(sweep(one=sweep("other.work"))), headline.figure
    for part in (figure.title, "in 2 of 2 benchmarks", "Thick line: 95% interval, 3 processes"):
        assert part in Tags(text).text.replace("\u00a0", " ")
        assert part not in headline.panels.replace(f'aria-label="{figure.title}"', "")
        assert part in " ".join(re.findall(r"<text[^>]*>(.*?)</text>", headline.svg.decode())).replace("\u00a0", " ")


def test_each_mark_has_its_value_and_its_device():
    one = run().bench("mine.x", cpu=lambda n: 1e-6 * n, gpu=lambda n: 1e-7 * n, copies=1e-6, n=(10, 100, 1000))
    titles = re.findall(r'<g class="(\w+)"><title>(.*?)</title>', page(one))
    assert ("accelerator0", "mine.x, n=1000, Synthetic H: 10× (9.8× to 10×); with copies 9.8×") in titles
    assert ("accelerator0", "n = 1000: Synthetic H: 10×") in titles
    assert ("accelerator0", "n = 1000: Synthetic H with copies: 9.8×") in titles


def test_a_legend_is_of_buttons_where_devices_are_to_be_told_apart():
    one = run(cuda=2, gpu={"label": "A"})
    one.data["machine_info"]["gpubench"]["devices"][2]["label"] = "B"
    text = page(sweep(one=one).bench("aa.mm", gpu1=lambda n: 5e-8 * n, n=(1, 10, 100)))
    buttons = re.findall(r'<button type="button" aria-pressed="false" data-role="(\w+)">.*?</svg>(.*?)</button>', text)
    assert {*buttons} >= {("accelerator0", "A"), ("accelerator1", "B")}
    assert "copied in and out" not in page(sweep())
    headline = page(sweep(copies=1e-6)).partition("</figure>")[0]
    assert ("copied in and out" in headline, "data-role" in headline) == (True, False)  # of a single GPU


def test_the_answer_s_benchmarks_have_pictures_by_size_at_addresses_of_their_own():
    one = run()
    for i in range(14):
        sweep(f"mine.w{i}" if i else "a b", one=one)
    tags = Tags(page(one))
    addresses = [given["id"] for tag, given in tags.found if tag == "div" and "id" in given]
    assert len(addresses) == 10
    assert "mine.w3" in addresses
    assert "a-b" in addresses
    assert "gpubench chart out -k NAME" in tags.text


def test_a_picture_by_size_is_over_the_first_baseline_of_the_answer():
    runs = [run(name, gpu={"label": f"GPU {name}"}) for name in ("one", "two")]
    for one, name in itertools.product(runs, ("a.b", "a.c")):
        one.bench(name, cpu=1.0, gpu=0.1, n=(1, 2, 4))
    titles = re.findall("<h3>(.*?)</h3>", page(*runs).partition('id="by-size"')[2])
    assert titles == ["a.b: speedup of two over one", "a.c: speedup of two over one"]


def test_without_a_gpu_and_numpy_a_picture_by_size_shows_the_time():
    one = run(cuda=0, processes=1)
    for name in ("mine.a", "mine.b"):
        one.bench(name, cpu=lambda n: 1e-6 * n, n=(10, 100, 1000))
    tags = Tags(page(one))
    assert "mine.a" in tags.all("div", "id")
    assert "mine.a: time per call by size" in tags.text
    assert "Of the other benchmarks" not in tags.text


def test_what_is_missing_stands_as_its_column_does():
    text = page(sweep(one=run().bench("mine.single", cpu=1e-3, gpu=1e-4)), charts=False)
    answer = text.partition("</table>")[0]
    assert answer.endswith("<td>—\n</tbody>")
    assert '<td data-value="">' in text  # of numbers, in All numbers


# Numbers --------------------------------------------------------------------------------------------------------------


def rows(text):
    body = text.partition('id="numbers"')[2].partition('id="details"')[0]
    return [re.findall(r'<td(?: data-value="([^"]*)")?>(.*?)(?=<td|\n)', row) for row in body.split("<tr>")[2:]]


def test_all_numbers_have_every_benchmark_with_values_to_sort_by():
    one = sweep().skip("aa.mm", "oom", "needs more memory", "cuda:0", n=1000)
    *measured, skipped = rows(page(one, charts=False))
    assert len(measured) == 6
    gpu = next(row for row in measured if "n=100" in row[0][1] and row[1][1] == "Synthetic H")
    assert float(gpu[2][0]) == pytest.approx(1e-5)
    assert gpu[2][1] == "10.0\u00a0µs"
    assert float(gpu[3][0]) == pytest.approx(10)
    assert gpu[3][1].startswith("<strong>10×</strong><small>(9.8× to 10×)")
    assert [cell for _, cell in skipped][2:4] == ["oom", "—"]
    assert skipped[-1] == ("", "needs more memory")


def test_the_speedups_of_all_numbers_are_over_their_own_baseline():
    """A GPU that the first machine has nothing like is compared with the CPU beside it."""
    first, second = run("laptop", cuda=0).bench("a.b", cpu=1.0), run("server").bench("a.b", cpu=0.5, gpu=0.01)
    for said in ("Synthetic, 2 threads · laptop", "the baseline"):
        assert f"speedup over {said}<" in page(first.read(), second.read(), charts=False).replace("\u00a0", " ")
        second.bench("a.c", cpu=0.5, gpu=0.01)


def test_the_notes_are_the_flags_of_results_csv():
    one = run(ceilings={"cuda:0": {"throughput": {"float32": 1e13}}}).bench("a.b", gpu=1e-3, flops=1.6e11, bytes=1e6)
    ((*_, notes),) = rows(page(one, charts=False))
    assert notes == ("", "implausible")


def test_the_page_asks_each_table_once_for_its_columns_of_numbers(monkeypatch):
    """Once for each cell, a page of four machines took a quarter of a minute."""
    asked, numeric = [], Table.numeric
    monkeypatch.setattr(Table, "numeric", property(lambda table: asked.append(table) or numeric.fget(table)))
    page(sweep(), charts=False)
    assert len({*map(id, asked)}) == len(asked) > 1


def test_a_size_is_shown_whole():
    """n=1048576 was 1,048,580 once."""
    one = run().bench("mine.fft", cpu=lambda n: 1e-8 * n, gpu=lambda n: 1e-9 * n, n=(2**10, 2**20, 2**24))
    assert {"n=1048576", "n=16777216"} <= {*re.findall(r"n=\d+", page(one, charts=False))}


def test_small_warnings_stand_below_the_tables():
    text = page(run(cuda=0, processes=1).bench("mine.a", cpu=1e-3), charts=False)
    assert "Timed in one process" in text.partition("<main>")[2]
    assert "warning" not in text.partition("<body>")[2].partition("<main>")[0]
