"""report.html in a real headless browser: nothing is fetched, nothing fails, and everything a reader does works."""

import base64
import json
import math
import os
import re
import shutil

import pytest
from records import SIZES, Made, gpu_run, run, sweep

from gpubench.commands.cli import main

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

HOSTILE = '<script>alert(1)</script>"&=1+1'
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (Debian: chromium-driver)"),
    pytest.mark.xdist_group("browser"),  # one browser for all
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for argument in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--no-first-run", "--window-size=1000,900", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    os.environ.setdefault("SE_OFFLINE", "true")
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver):
    """The browser on a light screen of 1000 pixels; after each test nothing was requested but the page, and nothing is
    on the console."""
    driver.get("about:blank")
    for log in ("browser", "performance"):
        driver.get_log(log)
    yield driver
    assert [entry["message"] for entry in driver.get_log("browser")] == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert {url.partition("#")[0] for url in sent} <= {driver.current_url.partition("#")[0]}
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of two devices with hostile names, opened from the disk."""
    one = run(gpu={"label": "RTX 5090 D v2 Laptop edition"})
    return reported(tmp_path_factory.mktemp("report"), sweep(one=sweep(HOSTILE, one=one)))


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return reported(tmp_path_factory.mktemp("suite"), Made(gpu_run(3), "", 3))


def reported(folder, *runs):
    """The address of a report."""
    paths = [one.save(folder / f"run{i}.json") for i, one in enumerate(runs)]
    assert main(["report", *map(str, paths), "-o", str(folder / "out")]) == 0
    return (folder / "out/report.html").as_uri()


def found(browser, selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def shown_rows(browser):
    return [row.text for row in found(browser, "#numbers tbody tr") if row.is_displayed()]


def on_screen(browser, width, address):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)


def test_a_page_opens_with_its_pictures_and_hostile_names_are_text(browser, page):
    browser.get(page)
    assert all(each.size["width"] > 600 for each in found(browser, "#pictures .scroll > svg"))
    assert not found(browser, "main script")
    assert HOSTILE in browser.find_element(By.ID, "numbers").text


@pytest.mark.parametrize("width", [420, 800, 1280])
def test_the_page_fits_its_screen_and_speedups_are_seen_at_once(browser, suite, width):
    """Wider tables and pictures are scrolled in boxes with a shade that shows that there is more."""
    on_screen(browser, width, suite)
    wide, boxes = browser.execute_script(
        "return [document.documentElement.scrollWidth, [...document.querySelectorAll('.scroll')].filter((e) => "
        "e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight)"
        ".map((e) => [e.scrollWidth > e.clientWidth, getComputedStyle(e).backgroundImage])]"
    )
    right = browser.execute_script(
        "return [...document.querySelectorAll('#answer td:nth-child(4) strong')].map((e) => "
        "e.getBoundingClientRect().right)"
    )
    values = [each.rect for each in found(browser, "#pictures figure:first-of-type svg text") if "×" in each.text]
    assert wide <= width
    assert all({"to right", "to left", "to top"} <= {*re.findall(r"to \w+", look)} for _, look in boxes)
    assert any(sideways for sideways, _ in boxes) == (width < 1000)
    assert found(browser, "#answer small")[0].is_displayed()
    assert right
    assert max(right) <= width
    assert sum(each["x"] + each["width"] <= width for each in values) >= 15


def test_search_by_words_and_sorting(browser, page):
    browser.get(page)
    every = shown_rows(browser)
    search = browser.find_element(By.ID, "search")
    search.send_keys("AA.mm n=100")
    assert len(shown_rows(browser)) == 2
    assert browser.find_element(By.ID, "count").text == f"2 of {len(every)}"
    search.send_keys(Keys.BACKSPACE * 20, "no such name")
    assert shown_rows(browser) == []
    search.send_keys(Keys.BACKSPACE * 20)
    time = next(head for head in found(browser, "#numbers th") if head.text == "time")
    for direction, order in (("descending", reversed), ("ascending", list)):
        time.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        values = [float(each.get_attribute("data-value")) for each in found(browser, "#numbers td:nth-child(3)")]
        assert time.get_attribute("aria-sort") == direction
        assert values == [*order(sorted(values))]
    speedup = next(head for head in found(browser, "#numbers th") if head.text.startswith("speedup"))
    for sign in (-1, 1):  # unknown ones last
        speedup.find_element(By.TAG_NAME, "button").click()
        values = [each.get_attribute("data-value") for each in found(browser, "#numbers td:nth-child(4)")]
        assert values == sorted(values, key=lambda value: sign * float(value) if value else math.inf)
    assert sorted(shown_rows(browser)) == sorted(every)


def test_an_address_opens_the_picture_of_a_benchmark(browser, page):
    browser.get(f"{page}#aa.mm")
    picture = browser.find_element(By.ID, "aa.mm")
    assert picture.is_displayed()
    assert "aa.mm: speedup" in picture.text
    assert len([each for each in found(browser, "details") if each.get_attribute("open")]) == 1


def test_a_button_of_the_legend_dims_the_other_devices(browser, tmp_path):
    one = run(cuda=2)
    one.bench("aa.mm", cpu=lambda n: 1e-6 * n, gpu=lambda n: 1e-7 * n, gpu1=lambda n: 5e-8 * n, n=SIZES)
    browser.get(reported(tmp_path, one))
    figure = next(each for each in found(browser, "#pictures figure") if each.find_elements(By.TAG_NAME, "button"))
    first, second, *_ = figure.find_elements(By.TAG_NAME, "button")

    def dimmed():
        marks = figure.find_elements(By.CSS_SELECTOR, ".scroll g.dim")
        return {mark.get_attribute("class").split()[0] for mark in marks}

    others = {each.get_attribute("data-role") for each in figure.find_elements(By.TAG_NAME, "button")}
    first.send_keys(Keys.ENTER)
    assert dimmed() == others - {first.get_attribute("data-role")}
    second.click()
    pressed = [each.get_attribute("aria-pressed") for each in (first, second)]
    assert (dimmed(), pressed) == (others - {second.get_attribute("data-role")}, ["false", "true"])
    second.click()
    assert dimmed() == set()


@pytest.mark.parametrize(
    ("theme", "colours"),
    [
        ("light", ("rgba(255, 255, 255, 1)", "rgb(89, 99, 110)")),
        ("dark", ("rgba(13, 17, 23, 1)", "rgb(154, 164, 176)")),
    ],
)
def test_page_and_pictures_take_the_theme(browser, page, theme, colours):
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(page)
    body = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    assert (body, found(browser, "#pictures .scroll text")[0].value_of_css_property("fill")) == colours


def test_it_prints_light_and_on_few_pages(browser, suite):
    """Also from a dark page: 12 pages at most of a run of the suite."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    browser.get(suite)
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    paper = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    card = browser.find_element(By.CSS_SELECTOR, "#answer .card")
    assert paper == "rgba(255, 255, 255, 1)"
    assert {each.value_of_css_property("font-size") for each in found(browser, ".legend, figcaption")} == {"12px"}
    assert card.value_of_css_property("background-image") == "none"
    assert card.size["height"] >= card.find_element(By.TAG_NAME, "table").size["height"]  # nothing is left to scroll
