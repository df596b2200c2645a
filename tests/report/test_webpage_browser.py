"""report.html in a real headless browser: nothing is fetched, nothing fails, and everything a reader does works."""

import base64
import json
import os
import re
import shutil
from urllib.parse import urlencode

import pytest
from records import SIZES, Made, gpu_run, run, sweep

from gpubench.commands.cli import main
from gpubench.errors import UsageError
from gpubench.report.number import times, times_range
from gpubench.report.study import Study
from gpubench.runfile import runs

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

HOSTILE = '<script>alert(1)</script>"&=1+1'
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (Debian: chromium-driver)"),
    pytest.mark.xdist_group("browser"),  # one browser for all
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for argument in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--no-first-run", "--window-size=1000,900", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(argument)
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    os.environ.setdefault("SE_OFFLINE", "true")
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.downloads = downloads
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of two devices with hostile names, opened from the disk."""
    folder = tmp_path_factory.mktemp("report")
    one = run(gpu={"label": "RTX 5090 D v2 Laptop edition"})
    return reported(folder, sweep(one=sweep(HOSTILE, one=one)), charts="default")


@pytest.fixture(scope="module")
def suite_page(tmp_path_factory):
    """The page of a run whose benchmarks are of a kind, and the run."""
    folder = tmp_path_factory.mktemp("suite")
    one = sweep(kind="matmul", title="Product n × n")
    return reported(folder, sweep("bb.sort", one=one, kind="irregular", title="Sort")), folder / "run0.json"


def reported(folder, *runs, charts="none"):
    """The address of a report."""
    paths = [one.save(folder / f"run{i}.json") for i, one in enumerate(runs)]
    assert main(["report", *map(str, paths), "-o", str(folder / "out"), "--charts", charts]) == 0
    return (folder / "out/report.html").as_uri()


def opened(browser, address):
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(address)
    return browser


def text(browser, name):
    return str(browser.find_element(By.ID, name).text)


def clean(browser, address):
    """No error on the console, and no request but for the page itself and what is embedded in it."""
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert {url.split("#")[0] for url in sent if not url.startswith("data:")} <= {address.split("#")[0]}


def test_opens_without_a_request_or_an_error(browser, page):
    opened(browser, page)
    assert browser.find_elements(By.CSS_SELECTOR, "#explorer-figure svg .curve")
    assert not browser.find_elements(By.CSS_SELECTOR, "main script")  # of the hostile name
    assert HOSTILE in browser.find_element(By.ID, "table").text
    clean(browser, page)


@pytest.fixture
def sized(browser):
    """A function that opens a page in a screen of this width, until the test ends."""

    def screen(width, address):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        return opened(browser, address)

    yield screen
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_speedups_are_on_a_phones_screen(browser, sized, tmp_path):
    """Of times by another library, beside which a long name stands; and of four machines, in a table that fits."""
    one = run(gpu={"label": "RTX 4060 Laptop (modelled)"})
    for name in ("irregular.cumulative_sum_of_rows", "irregular.sort"):
        how = {"flags": ("noisy",), "flops": 1e9, "unit": "value"}
        one.bench(name, cpu=4e-3, numpy=1e-3, gpu=1e-4, **how)
        one.bench(name, cpu=3e-3, gpu=1e-4, dtype="bfloat16", copies=1e-4, **how)
    four = []
    for i, name in enumerate(("xeon-2-cores", "laptop", "xeon-2.80ghz", "server")):
        four.append(run(name, cuda=i % 2, cpu={"label": f"Xeon {name}"}, gpu={"label": f"H{i}00 (modelled)"}))
        for kind, factor in (("cifar", 1), ("lenet", 1), ("mlp", -1)):
            gpu = {"gpu": 1e-3 * (4 + factor * i)} if i % 2 else {}
            four[i].bench(f"models.{kind}", cpu=0.8, **gpu, n=(32, 64), spread=0.2, flags=("noisy",))
    pages = []
    for name, files in (("one", [one]), ("four", four)):
        (folder := tmp_path / name).mkdir()
        pages.append(reported(folder, *files))
    at = (
        "return [...document.querySelectorAll('#answer th')].map((e) => [e.innerText, e.getBoundingClientRect().right])"
    )
    heads = dict(sized(420, pages[0]).execute_script(at))
    assert heads["speedup"] <= 394
    for width in (420, 800):
        sized(width, pages[1])
        assert len(browser.find_elements(By.CSS_SELECTOR, "#answer th")) == 7
        card = "const card = document.querySelector('#answer .card'); "
        card += "return [card.scrollWidth, card.clientWidth, getComputedStyle(card).backgroundImage]"
        needed, wide, look = browser.execute_script(card)
        assert needed <= wide or (width == 420 and "gradient" in look), width  # each device of each machine is a column
    drawn = text(browser, "explorer-figure")
    assert "(simulated)" not in drawn
    assert drawn.count("Times of the") == 1


def test_no_table_of_the_answer_is_cut_at_800_pixels(browser, tmp_path):
    runs = []
    for name, factors in (("RTX 4060 Laptop", (1, 1, 1)), ("H200", (2.8, 0.6, 2.0))):
        runs.append(one := run(processes=1, gpu={"label": name}))
        for kind, factor in zip(("gpt2", "lenet", "cifar"), factors, strict=True):
            one.bench(f"training.{kind}", gpu=1e-3 * factor, dtype="bfloat16")
    falls_behind = run("Xeon", gpu={"label": "H200 (modelled)"})
    how = {"dtype": "bfloat16", "variant": "update adam", "copies": 5e-5, "n": (4, 16)}
    for name in ("training.width", "training.part"):
        falls_behind.bench(name, cpu={4: 1e-3, 16: 2e-3}.get, gpu={4: 1e-4, 16: 6e-3}.get, spread=0.05, **how)
    browser.set_window_size(800, 900)
    widths = "(card) => [card.innerText, card.scrollWidth, card.clientWidth]"
    cards = []
    for place, files in (("two", runs), ("one", [falls_behind])):
        (folder := tmp_path / place).mkdir()
        opened(browser, reported(folder, *files))
        cards += browser.execute_script(f"return [...document.querySelectorAll('#answer .card')].map({widths})")
    browser.set_window_size(1000, 900)
    told = " ".join(text for text, _, _ in cards)
    assert "slower)" in told
    assert "only up to" in told
    assert [text for text, needed, width in cards if needed > width] == []


@pytest.mark.parametrize(("width", "least"), [(1000, 1 / 3), (420, 1 / 2)], ids=["screen", "phone"])
def test_no_label_of_the_explorer_is_cut(browser, tmp_path, width, least):
    """Of two GPUs of long names, which on a phone stand above, in no space that the lines need."""
    names = ("RTX 5090 D v2 Laptop edition", "RTX 4060 Laptop of another maker")
    address, drawn = reported(tmp_path, *(sweep(one=run(gpu={"label": name})) for name in names)), []
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    script = """const svg = document.querySelector('#explorer-figure svg'), boxes = [...svg.querySelectorAll('text')];
    return [boxes.map((e) => [e.textContent, e.getBBox()]), svg.viewBox.baseVal.width,
            svg.querySelector('.curve').getBBox().width]"""
    for quantity in ("speedup", "time_s"):
        opened(browser, f"{address}#quantity={quantity}")
        drawn.append(browser.execute_script(script))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    for boxes, wide, line in drawn:
        assert any("4060" in text for text, _ in boxes)
        assert [text for text, box in boxes if box["x"] < 0 or box["x"] + box["width"] > wide] == []
        assert wide <= width
        assert line > least * wide


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A GPU's benchmark of which only a limit is known at n=100 and, with copies, nothing there, since its processes
    differ; one that can't be measured, for a long reason; and names as long as people have."""
    gpu = {"label": "Simulated accelerator", "simulated": True}
    one = run(processes=3, gpu=gpu)
    for n, cpu, noisy in (
        (1, 1e-4, {}),
        (10, 1e-4, {}),
        (100, (0.6e-4, 1e-4, 1.6e-4), {"flags": ("contended", "noisy")}),
    ):
        one.bench("mylib.moving_average", cpu=cpu, n=n, bytes=1e6, **noisy)
        one.bench("mylib.moving_average", gpu=1e-5, n=n, bytes=1e6, copies=3e-5)
    one.skip("mylib.large", "oom", f"needs more memory: {'so it said; ' * 60}", "cuda:0", n=1)
    return reported(tmp_path_factory.mktemp("limited"), one)


def test_a_limit_is_a_triangle_with_its_bar_that_no_line_joins(browser, limited):
    opened(browser, f"{limited}#workload=mylib.moving_average&quantity=speedup")
    marks = browser.execute_script(
        "return [...document.querySelectorAll('#explorer-figure [data-row]')].map((e) => e.tagName)"
    )
    joined = browser.find_element(By.CSS_SELECTOR, "#explorer-figure .curve:not(.copies)").get_attribute("d")
    drawn = browser.find_element(By.CSS_SELECTOR, "#explorer-figure svg").text.replace("\n", " ")
    assert marks == ["circle", "circle", "path"]
    assert joined.count("L") == 1  # of three points
    assert "Triangle: only a limit is known" in drawn
    assert "come from a model" in drawn
    assert drawn.count("come from a model") == 1
    assert ("(simulated)" in drawn, "(modelled)" in drawn) == (True, False)
    browser.find_element(By.ID, "explorer-figure").send_keys(Keys.ARROW_RIGHT * 3)
    assert re.search(r"n = 100: .*≥ \d[\d.]*×\* \(within ", text(browser, "detail"))


def test_words_at_the_end_of_a_line_are_of_the_last_size(browser, limited):
    opened(browser, f"{limited}#workload=mylib.moving_average&quantity=speedup")
    labels = browser.execute_script(
        "return [...document.querySelectorAll('#explorer-figure .named')].map((e) => e.textContent)"
    )
    assert any(label.startswith("≥ ") for label in labels), labels
    assert "unknown with copies" in labels
    for quantity, told in (("time_s", "100 µs* "), ("rate", "10 GB/s* ")):
        opened(browser, f"{limited}#workload=mylib.moving_average&quantity={quantity}")
        drawn = browser.find_element(By.CSS_SELECTOR, "#explorer-figure svg").text
        assert told in drawn
        assert "Hollow: noisy measurement. * noisy" in drawn


@pytest.mark.parametrize("width", [800, 420])
def test_all_numbers_fit_or_are_scrolled_to_in_low_rows(browser, limited, width):
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    opened(browser, limited)
    box = "const box = document.querySelector('#numbers .scroll'); "
    needed, wide, look = browser.execute_script(
        f"{box} return [box.scrollWidth, box.clientWidth, getComputedStyle(box).backgroundImage]"
    )
    rows = browser.execute_script("return [...document.querySelectorAll('#table tr')].map((e) => e.offsetHeight)")
    size = "parseFloat(getComputedStyle(e).fontSize)"
    small = browser.execute_script(f"return [...document.querySelectorAll('#table small')].map((e) => {size})")
    named = browser.find_element(By.CSS_SELECTOR, "#table tbody td").get_attribute("innerHTML")
    signs = text(browser, "numbers")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert needed <= wide or (width == 420 and "gradient" in look)
    assert "mylib.<wbr>moving_<wbr>average<br>" in named  # not broken within a word
    assert max(rows) < 90
    assert min(small) >= 11
    assert "contended, noisy" in signs
    assert signs.count("* noisy: may be far off") == 1


def test_a_curve_that_ends_before_a_withheld_size_is_unknown(browser, tmp_path):
    """Not labelled with the speedup of the largest size that is left."""
    one = run().bench("aa.mm", cpu=1e-4, gpu={1: 1e-5, 10: 1e-5, 100: (1e-8, 1e-6, 1e-4)}.get, n=SIZES)
    opened(browser, reported(tmp_path, one) + "#quantity=speedup")
    labels = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "#explorer-figure svg text.strong")]
    assert any(label.startswith("unknown ") for label in labels)
    assert not any(label.startswith("10× ") for label in labels)
    drawn = browser.find_element(By.CSS_SELECTOR, "#explorer-figure svg").text
    assert "1 result not drawn: unknown (too noisy)" in drawn


def test_shares_of_the_peak_are_told_and_sorted_as_known_and_1x_is_as_fast(browser, tmp_path):
    one = run(ceilings={"cuda:0": {"throughput": {"float32": 1e12}}})
    flops = {1: 1e5, 10: 5e7, 100: 1.5e8}
    one.bench("aa.mm", cpu=0.985e-4, n=SIZES).bench("aa.mm", gpu=1e-4, n=SIZES, flops=flops.get)
    opened(browser, f"{reported(tmp_path, one)}#search=cuda&sort=utilisation down&quantity=speedup")
    heads = [head.text.strip(" ▾") for head in browser.find_elements(By.CSS_SELECTOR, "#table th")]
    rows = browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")
    shares = [row.find_elements(By.TAG_NAME, "td")[heads.index("% of peak")].text for row in rows]
    browser.find_element(By.ID, "explorer-figure").send_keys(Keys.ARROW_RIGHT)
    assert shares == ["50", "<1", "—"]  # and not first what is above the peak
    assert re.search(r"1\.0×.* as fast as .* <1 % of peak", text(browser, "detail"))


def test_search_sort_and_a_click_that_explores(browser, page):
    opened(browser, page)
    count = len(browser.find_elements(By.CSS_SELECTOR, "#table tbody tr"))
    search = browser.find_element(By.ID, "search")
    for typed, found in ((search.get_attribute("placeholder"), True), ("no such name", False)):
        search.clear()
        search.send_keys(typed)
        assert bool(browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")) == found, typed
    assert search.get_attribute("placeholder") == "aa.mm float32 n=1 and not cpu"
    assert text(browser, "count") == f"Nothing matches. To type, for example: {search.get_attribute('placeholder')}"
    search.clear()
    search.send_keys("aa.mm n=100")
    rows = browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")
    assert 0 < len(rows) < count
    assert all("aa.mm" in row.text and "n = 100" in row.text for row in rows)
    assert f"{len(rows)} of {count}" in text(browser, "count")
    browser.find_element(By.CSS_SELECTOR, "#table thead th:first-child button").click()
    head = browser.find_element(By.CSS_SELECTOR, "#table thead th:first-child")
    assert head.get_attribute("aria-sort") == "descending"
    browser.find_element(By.ID, "search").clear()
    browser.find_element(By.ID, "search").send_keys("script")
    browser.find_element(By.CSS_SELECTOR, "#table tbody tr").click()
    assert browser.find_element(By.ID, "workload").get_attribute("value") == HOSTILE
    clean(browser, page)


@pytest.mark.parametrize(
    "words",
    [
        "aa.mm", "n=10", "n = 10", "aa.mm float32, n=100", "n=1 or n=100", "not n=1", "aa and not cuda:0", "cpu",
        "(n=1 or n=10) and mm", "H-GPU", "products", "product", "n=10⁰", "float3", "test_mm", "zz", "AA.MM not(n=1)",
    ],
)  # fmt: skip
def test_search_takes_what_k_takes(browser, suite_page, words):
    page, run = suite_page
    opened(browser, f"{page}#{urlencode({'search': words})}")
    try:
        count = len(Study([runs.read(run)], expression=words).rows)
    except UsageError:
        count = 0
    assert len(browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")) == count


def test_a_search_that_isnt_finished_shows_what_it_can(browser, suite_page):
    page, _ = suite_page
    for typed in ("aa.mm and", "not", "(", "(aa.mm or", "aa.mm)", "or", "(" * 20_000, "not " * 9_000):
        opened(browser, f"{page}#{urlencode({'search': typed})}")
        assert browser.find_elements(By.CSS_SELECTOR, "#table tbody tr"), typed
        clean(browser, page)


def focus(browser):
    """What has the focus, and how it is outlined."""
    script = (
        "const e = document.activeElement, s = getComputedStyle(e); return [e.tagName, e.innerText, s.outlineStyle]"
    )
    return tuple(browser.execute_script(script))


def test_the_keyboard_reaches_all_and_the_focus_stays(browser, page):
    opened(browser, page)
    stops = "return [...document.querySelectorAll('#table [tabindex], #table button')].filter((e) => e.tabIndex >= 0)"
    rows = browser.find_elements(By.CSS_SELECTOR, "#table .opens")
    heads = browser.find_elements(By.CSS_SELECTOR, "#table th")
    assert len(browser.execute_script(stops)) == len(heads) + 1 < len(rows)
    keys = webdriver.ActionChains(browser).send_keys
    browser.execute_script("arguments[0].focus()", heads[0].find_element(By.TAG_NAME, "button"))
    keys(Keys.ENTER).perform()
    tag, told, outline = focus(browser)  # of a table that is drawn anew
    assert (tag, told.rstrip(" ▾▴"), outline) == ("BUTTON", "benchmark", "solid")
    keys(Keys.TAB * len(heads)).perform()
    first = focus(browser)
    keys(Keys.ARROW_DOWN).perform()
    second = focus(browser)
    assert (first[0], first[2], second[0], second[2]) == ("TR", "solid", "TR", "solid")
    assert first[1] != second[1]
    keys(Keys.ENTER).perform()
    assert browser.switch_to.active_element.get_attribute("id") == "explorer-figure"
    keys(Keys.ARROW_RIGHT).perform()
    assert "n = " in text(browser, "detail")
    keys(Keys.ESCAPE).perform()
    assert focus(browser) == second


def test_it_prints_light_and_on_few_pages(browser, tmp_path):
    """Also from a dark page: 12 pages at most of a run of the suite."""
    opened(browser, reported(tmp_path, Made(gpu_run(3), "", 3), charts="default") + "#theme=dark")
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = [each for each in browser.find_elements(By.CSS_SELECTOR, "main figure img") if each.is_displayed()]
    paper = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    stripes = browser.find_element(By.CSS_SELECTOR, "#answer .card").value_of_css_property("background-image")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert stripes == "none"
    assert {each.get_attribute("class") for each in shown} == {"light"}
    assert paper == "rgba(255, 255, 255, 1)"


def test_a_click_into_the_numbers_opens_nothing_where_there_is_no_explorer(browser, tmp_path):
    how = {"cpu": 1e-3, "n": None, "device": "", "dtype": "", "devices": ()}
    address = reported(tmp_path, run(cuda=0, processes=1).bench("mine.short", **how).bench("other.b", **how))
    opened(browser, address)
    assert not browser.find_elements(By.ID, "explorer-figure")
    browser.find_element(By.CSS_SELECTOR, "#table tbody tr").click()
    assert "#" not in browser.current_url
    clean(browser, address)


def test_pointer_and_keys_tell_the_numbers(browser, page):
    opened(browser, f"{page}#workload=aa.mm")
    picture = browser.find_element(By.ID, "explorer-figure")
    picture.send_keys(Keys.ARROW_RIGHT)
    first = text(browser, "detail")
    assert "n = 1:" in first
    picture.send_keys(Keys.ARROW_RIGHT)
    assert "n = 10:" in text(browser, "detail")
    assert "10×" in text(browser, "detail")
    mark = browser.find_elements(By.CSS_SELECTOR, "#explorer-figure [data-row]")[-1]
    webdriver.ActionChains(browser).move_to_element(mark).perform()
    assert "n = 100:" in text(browser, "detail")
    clean(browser, page)


def test_the_address_keeps_the_view(browser, page):
    opened(browser, page)
    browser.find_element(By.ID, "quantity-time_s").click()
    browser.find_element(By.ID, "search").send_keys("n=10")
    browser.find_element(By.ID, "theme").click()
    address = browser.current_url
    shown = text(browser, "count"), browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    opened(browser, address)
    assert browser.find_element(By.ID, "quantity-time_s").get_attribute("aria-pressed") == "true"
    again = text(browser, "count"), browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    assert again == shown
    clean(browser, page)


@pytest.mark.parametrize(("theme", "paper"), [("light", "rgba(255, 255, 255, 1)"), ("dark", "rgba(13, 17, 23, 1)")])
def test_themes(browser, page, theme, paper):
    """The pictures of the theme are shown, and loaded: the content policy allows them."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    )
    opened(browser, page)
    body = browser.find_element(By.TAG_NAME, "body")
    pictures = browser.find_elements(By.CSS_SELECTOR, "main figure img")
    shown = [picture for picture in pictures if picture.is_displayed()]
    assert body.value_of_css_property("background-color") == paper
    assert {picture.get_attribute("class") for picture in shown} == {theme}
    assert len(shown) * 2 == len(pictures)
    assert all(browser.execute_script("return arguments[0].naturalWidth", picture) for picture in shown)
    browser.find_element(By.ID, "theme").click()
    assert not any(picture.is_displayed() for picture in shown)
    clean(browser, page)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_saves_csv_and_the_explorers_picture(browser, page):
    opened(browser, f"{page}#workload=aa.mm")
    browser.find_element(By.ID, "download").click()
    browser.find_element(By.CSS_SELECTOR, "#explorer-figure .tools button").click()
    wanted = {"gpubench.csv", "aa-mm.svg"}
    WebDriverWait(browser, 10).until(lambda driver: wanted <= {path.name for path in driver.downloads.iterdir()})
    assert "<svg" in (browser.downloads / "aa-mm.svg").read_text()
    header, *lines = (browser.downloads / "gpubench.csv").read_text().splitlines()
    assert header.startswith("workload,dtype")
    assert len(lines) == len(browser.find_elements(By.CSS_SELECTOR, "#table tbody tr"))
    clean(browser, page)


def test_a_ratio_reads_as_in_the_tables(browser, page):
    opened(browser, page)
    values = (1234.5, 126.4, 99.6, 34.2, 9.96, 2.0, 1.04, 0.997, 0.5, 0.008)
    shown = browser.execute_script("return arguments[0].map((value) => times(value))", values)
    assert shown == [times(value) for value in values]
    ranges = ((2.0, 3.1), (0.2, 0.5), (0.5, 2.0), (1.01, 1.04))
    shown = browser.execute_script("return arguments[0].map((ends) => timesRange(...ends))", ranges)
    assert shown == [times_range(*ends) for ends in ranges]
