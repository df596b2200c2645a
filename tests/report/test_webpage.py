"""report.html as text: whole, equal for equal input, closed to the network and to hostile names; and its data: the same
numbers as the tables, and nothing that an interval denies."""

import base64
import hashlib
import json
import re
from html import escape
from html.parser import HTMLParser

import pytest
import records
from reading import answered, study_of
from records import SIZES, run, sweep

from gpubench.report.charts.theme import ACCELERATORS, CPUS, DARK, LIGHT, MARK_SHAPES, colour
from gpubench.report.webpage import COLUMNS, INTERNED, page_data, webpage
from gpubench.runfile.matching import shown_name

HOSTILE = ("</script><img src=x onerror=alert(1)>", "${data}", "<!--", "=1+1", "n" * 300)
PICTURES = [("", title, b"<svg>light</svg>", b"<svg>dark</svg>") for title in ('One "a" & <b>', "Another")]


def page(workload):
    return webpage(answered(sweep(workload)), PICTURES)


def made(*runs):
    """The data as the page reads it."""
    return json.loads(json.dumps(page_data(study_of(*runs)), allow_nan=False))


def rows(data):
    """As the script makes them, with the device's class of colour."""
    found = [dict(zip(data["columns"], values, strict=True)) for values in data["rows"]]
    named = [{k: data["strings"][v] if k in data["interned"] else v for k, v in row.items()} for row in found]
    return [row | {"colour": data["devices"][row["device"]]["colour"]} for row in named]


class Tags(HTMLParser):
    """Every element and its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_the_policy_allows_its_own_style_and_script_and_embedded_pictures():
    text = page("aa.mm")
    (policy,) = (given["content"] for _, given in Tags(text).found if given.get("http-equiv"))
    parts = re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", text, re.DOTALL)
    style, script = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
    own = f"style-src 'sha256-{style}'; script-src 'sha256-{script}'"
    assert policy == f"default-src 'none'; img-src data:; {own}; base-uri 'none'"


def test_nothing_is_fetched():
    tags = Tags(page("aa.mm"))
    assert not [given for _, given in tags.found if "style" in given or "srcset" in given]
    sources = [given["src"] or "" for _, given in tags.found if "src" in given]
    assert len(sources) == 2 * len(PICTURES)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    links = [given["href"] or "" for tag, given in tags.found if tag in ("a", "link") and given.get("href")]
    assert links
    assert all(re.fullmatch(r"#[a-z]+|[a-z]+\.(csv|md)", link) for link in links)


def test_a_picture_is_there_for_a_light_and_a_dark_page():
    images = [given for tag, given in Tags(page("aa.mm")).found if tag == "img"]
    assert [image["class"] for image in images] == ["light", "dark"] * 2
    assert [image["alt"] for image in images[::2]] == [title for _, title, *_ in PICTURES]
    decoded = [base64.b64decode((image["src"] or "").partition(",")[2]) for image in images[:2]]
    assert decoded == [b"<svg>light</svg>", b"<svg>dark</svg>"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text(name):
    tags = Tags(text := page(name))
    assert [given.get("class") for tag, given in tags.found if tag == "img"] == ["light", "dark"] * 2
    assert not [tag for tag, _ in tags.found if tag in ("iframe", "object")]
    assert [tag for tag, _ in tags.found].count("script") == 2
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert any(name[:30] in entry for entry in data["strings"])


def test_a_section_that_would_be_empty_is_left_out():
    """The explorer needs a size, and a picture that one was drawn."""
    sized = ["answer", "picture", "explore", "pictures", "numbers", "details"]
    assert re.findall(r'<section id="(\w+)"', page("aa.mm")) == sized
    one = run(cuda=0, processes=1)
    for i in range(3):
        one.bench(f"mine.w{i}", cpu="1 ms", n=None, device="", dtype="", devices=())
    text = webpage(answered(one))
    assert re.findall(r'<section id="(\w+)"', text) == ["answer", "numbers", "details"]
    assert re.findall(r'<a href="#(\w+)"', text) == ["answer", "numbers", "details"]


# The data -------------------------------------------------------------------------------------------------------------


def test_a_row_holds_the_tables_numbers():
    data = made(sweep())
    assert tuple(data["columns"]) == COLUMNS
    assert set(data["interned"]) == set(INTERNED)
    row = next(row for row in rows(data) if row["speedup"] and row["size"] == 10)
    assert (row["workload"], row["dtype"], row["size_name"]) == ("aa.mm", "float32", "n")
    assert (row["speedup"], row["time_s"], row["baseline_s"]) == pytest.approx((10, 1e-6, 1e-5), rel=1e-4)
    assert row["speedup_low"] < 10 < row["speedup_high"]
    assert row["low_s"] < 1e-6 < row["high_s"]
    assert (row["colour"], data["devices"][0]["colour"], data["first"]) == ("accelerator0", "cpu0", "aa.mm")


def test_parameters_but_for_the_size_are_the_setting():
    one = run().bench("aa.mm", cpu=1e-3, form="out", n=SIZES).bench("aa.mm", cpu=1e-3, form="new", n=SIZES)
    found = rows(made(one))
    assert {row["setting"] for row in found} == {"out", "new"}


@pytest.mark.parametrize(("numpy", "base"), [({}, ""), ({"numpy": lambda n: 3e-6 * n}, "NumPy")])
def test_a_cpu_alone_begins_with_throughput_and_names_what_a_speedup_is_over(numpy, base):
    data = made(run(cuda=0).bench("aa.mm", cpu=lambda n: 1e-6 * n, n=(1, 10), **numpy))
    assert (data["quantity"], data["baseline"]) == ("rate", base)
    assert base in data["speedup"]
    assert {round(row["speedup"] or 0) for row in rows(data)} == ({0, 3} if base else {0})
    assert all(row["time_s"] for row in rows(data))


def test_an_expression_stays_whole():
    names = [f"time.{text}" for text in ("np.cos(x)", "x * 1.25", "x * 1.5")]
    one = run(cuda=0)
    for name in names:
        one.bench(name, cpu="1 ms", n=None)
    assert {row["workload"] for row in rows(made(one))} == {shown_name(name) for name in names}


@pytest.mark.parametrize(("gpu", "known"), [((1e-8, 1e-6, 1e-4), False), ((1e-6, 1e-6, 1e-6), True)])
def test_a_speedup_that_its_interval_denies_is_no_number(gpu, known):
    found = rows(made(run().bench("aa.mm", cpu=1e-5, spread=0).bench("aa.mm", gpu=gpu)))
    (row,) = (row for row in found if row["colour"] == "accelerator0")
    assert bool(row["doubt"]) != known
    assert row["speedup"] == (10 if known else None)


def test_a_rate_above_a_peak_is_no_number_and_its_speedup_needs_no_peak():
    one = run(ceilings={name: records.ceilings(name) for name in ("cpu", "cuda:0")})
    one.bench("aa.mm", cpu=1e-3, flops=1e3).bench("aa.mm", gpu=1e-5, flops=1e18)
    gpu, cpu = sorted(rows(made(one)), key=lambda row: row["colour"])
    assert (cpu["rate"], gpu["rate"]) == (pytest.approx(1e6, rel=1e-3), None)
    assert gpu["speedup"] == pytest.approx(100)


def test_a_crossover_that_the_interval_states_is_a_mark():
    """Where the CPU's line and the GPU's floor of 10 µs meet; at the size after it the GPU is ahead."""
    data = made(run().bench("aa.mm", cpu=lambda n: 1e-6 * n, gpu={1: 1e-5, 10: 2e-5, 100: 1e-5}.get, n=SIZES))
    ((crossing,),) = data["crossings"].values()
    assert 10 < crossing["size"] < 100
    assert data["devices"][crossing["device"]]["colour"] == "accelerator0"
    assert set(data["crossings"]) == set(data["findings"])
    assert crossing["text"] in next(iter(data["findings"].values()))


def test_machines_have_devices_of_their_own():
    data = made(sweep(), sweep(gpu=2e-7))
    shown = [device for device in data["devices"] if not device["colour"].startswith("cpu")]
    assert [(device["colour"], device["shape"]) for device in shown] == [("accelerator0", "o"), ("accelerator1", "s")]
    assert len({device["name"] for device in data["devices"]}) == 4
    speedups = {row["device"]: row["speedup"] for row in rows(data) if row["speedup"]}
    assert sorted(round(value, 1) for value in speedups.values()) == [0.5, 1, 10]  # as in every table
    assert data["speedup"] == "speedup over run0"


def test_devices_of_one_colour_differ_in_shape_and_look_as_in_the_pictures():
    devices = made(*(sweep().bench("aa.mm", numpy=1e-4) for _ in range(4)))["devices"]
    assert len({(device["colour"], device["shape"]) for device in devices}) == len(devices) == 12
    text = webpage(answered(sweep()))
    assert all(device["shape"] == MARK_SHAPES[device["colour"]] for device in devices)
    assert all(f"light-dark({colour(LIGHT, role)}, {colour(DARK, role)})" in text for role in (*ACCELERATORS, *CPUS))


def test_an_unmeasured_benchmark_is_a_row_with_its_reason():
    data = made(sweep().skip("aa.big", "oom", "needs 90 GB", "cuda:0", n=5))
    (row,) = (row for row in rows(data) if row["workload"] == "aa.big")
    assert (row["status"], row["reason"], row["time_s"]) == ("oom", "needs 90 GB", None)


def limited():
    """A speedup of which only a limit is known."""
    one = run(processes=1).bench("aa.mm", cpu=1e-4, n=1, spread=1.4, flags=("contended",))
    return one.bench("aa.mm", gpu=1e-6, n=1, spread=0.0)


def test_signs_beside_numbers_are_explained_once_below_them():
    one = limited()
    explained = made(one)["signs"]
    assert set(explained) == {"*", "≥", "—"}
    text = webpage(answered(one)).partition('id="numbers"')[2].partition("</section>")[0]
    assert all(text.count(escape(meaning)) == 1 for meaning in explained.values())
    assert not set(made(sweep())["signs"]) & {"*", "≥", "†", "‡"}


def test_a_sign_stays_in_the_line_of_its_number():
    one = limited()
    text = webpage(answered(one)).partition("<main>")[0]
    assert "≥&nbsp;30×" in text
    assert "≥ 30×" not in text


def test_a_speedup_is_bold_with_or_without_its_range_and_nothing_else_is():
    one = run().bench("aa.two", cpu=1e-3, gpu=1e-4, n=None, copies=1e-4).bench("aa.too", cpu=1e-3, n=None)
    one.bench("aa.one", cpu=1e-3, gpu=1e-4, n=None, spread=0.0).bench("aa.too", gpu=(1e-8, 1e-3, 1.0), n=None)
    cells = re.findall("<td[^>]*>(.*?)</td>", webpage(answered(one)).partition('id="numbers"')[0])
    assert [cell for cell in cells if "<strong>" in cell] == [
        "<strong>10×</strong>", '<strong>10×</strong> <span class="range">(9.8× to 10×)</span>'
    ]  # fmt: skip


def test_a_limit_is_told_as_in_the_tables_and_drawn():
    found = rows(made(limited().bench("aa.mm", cpu=1e-4, gpu=1e-6, n=10)))
    told = {row["size"]: (row["told"], row["speedup"]) for row in found if row["speedup"]}
    assert told == {1: ("≥ 30×*", pytest.approx(30)), 10: ("100×", 100)}


def test_a_size_has_all_its_digits():
    one = run().bench("mine.fft", cpu=lambda n: 1e-8 * n, gpu=lambda n: 1e-9 * n, n=(2**10, 2**20, 2**24))
    assert {row["size"] for row in rows(made(one))} == {2**10, 2**20, 2**24}


def test_the_explorer_begins_with_the_setting_of_the_answer():
    one = run().bench("mine.net", cpu=1.0, gpu=0.1, variant="autocast").bench("mine.net", cpu=1.0, gpu=0.1)
    assert made(one)["plainest"]["mine.net"] == {"dtype": "float32", "variant": "eager", "setting": "n=64"}
