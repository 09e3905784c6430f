"""The page in a real browser: Chromium, driven by selenium. Skipped, with the reason, where either is missing."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from view_programs import (
    ATTENTION,
    EXPONENTIALS,
    PROGRAMS,
    RMSNORM,
    RULE,
    SEARCHED,
    compiled,
    record_of,
    served,
    until,
)

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.view.live_program import BackgroundJobs, LiveProgram
from dplc.engine.view.provenance import Column, column_records
from dplc.engine.view.records import view_record
from dplc.engine.view.server import LivePage, page

pytest.importorskip("selenium", reason="selenium is not installed: pip install -e '.[dev]'")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (BROWSER and DRIVER), reason="no chromium and chromedriver here: apt install chromium-driver"
    ),
]
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-dev-shm-usage", "--window-size=1500,900",
)  # fmt: skip
Record = dict[str, Any]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    made.set_page_load_timeout(60)
    yield made
    made.quit()


class Browser:
    """Chromium with a page."""

    def __init__(self, driver: Any, file: Path) -> None:
        self.driver, self.file = driver, file

    def open(self, record: Record) -> None:
        self.file.write_text(page(record))
        self.driver.get(self.file.as_uri())

    @contextmanager
    def live(self, shown: LivePage, program: Any = None) -> Iterator[Any]:
        """A page on a server, until the browser has left it."""
        with served(shown, program) as server:
            try:
                self.driver.get(server.url)
                yield server
            finally:
                self.driver.get("about:blank")

    def js(self, expression: str) -> Any:
        return self.driver.execute_script(f"return {expression}")

    def until(self, expression: str) -> Any:
        return until(lambda: self.js(expression))

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def tab(self, name: str) -> str:
        """Open a view with all that it folds, and return its text."""
        self.find(f"#tab-{name}").click()
        self.js("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        return str(self.find("#main").text)

    def lit(self) -> list[set[int]]:
        """The lines of each column that light up."""
        return [{*lines} for lines in self.js("rows.map((c) => [...c.keys()].filter((n) => c[n].matches('.on')))")]

    def overflows(self) -> bool:
        """Whether anything is wider than the window, but what scrolls by itself."""
        return bool(
            self.js(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth || "
                "[...document.querySelectorAll('pre, table, .card, .inspect, header, nav')].some((x) => "
                "x.getBoundingClientRect().right > innerWidth + 1 && !x.closest('.wide, .graph, .columns'))"
            )
        )


@pytest.fixture
def browser(driver: Any, tmp_path: Path) -> Iterator[Browser]:
    """A browser in which nothing failed, and no policy was broken."""
    yield Browser(driver, tmp_path / "page.html")
    assert [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.fixture(scope="module")
def searched() -> Record:
    """The record of a program with all that may follow its compile."""
    shown = LivePage(SEARCHED)
    shown.show(**view_record(compiled(SEARCHED), SEARCHED))
    BackgroundJobs(compiled(SEARCHED), shown, True, check=True).measure_and_explore()
    return shown.record


# ---- Columns.


def test_a_line_of_cuda_lights_up_all_the_way(browser: Browser) -> None:
    browser.open(record_of(PROGRAMS["steps"][0]))
    lines = browser.js("data.columns.map((column) => column.lines)")
    (place,) = [n for n, line in enumerate(lines[6]) if "sinf(" in line]
    browser.find(f"#l6-{place}").click()
    lit = browser.lit()
    assert all(lit) and lit[0] == {2} and place in lit[6]
    assert [lines[1][n].split(":")[0].strip() for n in lit[1]] == ["sin_1"]
    assert browser.js("document.getElementById('said').textContent").startswith(f"CUDA line {place + 1}: source 3;")
    browser.js("document.getElementById('l0-2').click()")  # and down again
    assert place in browser.lit()[6]


def test_keys_walk_lines_and_links(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    def pressed(*keys: str) -> str:
        """What has the focus after keys."""
        browser.driver.switch_to.active_element.send_keys(*keys)
        return str(browser.js("document.activeElement.ariaLabel || document.activeElement.className"))

    browser.open(record_of(RMSNORM))
    browser.js("document.querySelectorAll('.lines')[6].focus()")
    assert pressed(Keys.HOME, *[Keys.ARROW_DOWN] * 8) == "CUDA, lines"
    assert browser.js("document.activeElement.getAttribute('aria-activedescendant')") == "l6-8"
    walked = [pressed(key) for key in (Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_RIGHT)]
    assert walked == ["Tile IR, lines", "your source, lines", "Tile IR, lines"]
    assert browser.js("document.querySelectorAll('[aria-selected=true].ln').length") == 1
    assert pressed(Keys.ENTER) == "chip"
    pressed(Keys.ENTER)
    browser.until("document.querySelector('.event[open] pre') !== null")
    browser.find("#tab-timeline").send_keys(Keys.ARROW_RIGHT)
    assert browser.js("document.activeElement.id") == "tab-kernels"


def test_three_columns_are_open_and_a_key_opens_others(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(record_of(RMSNORM))
    boxes = browser.driver.find_elements("css selector", ".column")
    switches = browser.driver.find_elements("css selector", ".bar .chip")
    for opened, press in (
        ({0, 4, 6}, None),
        ({0, 3, 4, 6}, switches[3].click),
        ({0, 4, 6}, lambda: switches[3].send_keys(Keys.ENTER)),
    ):
        if press:
            press()
        assert {place for place, box in enumerate(boxes) if box.is_displayed()} == opened
        assert {n for n, one in enumerate(switches) if one.get_attribute("aria-pressed") == "true"} == opened


def test_a_dump_without_the_first_columns_opens_all(browser: Browser) -> None:
    record = record_of(RMSNORM)
    browser.open({**record, "columns": record["columns"][1:3]})
    assert all(box.is_displayed() for box in browser.driver.find_elements("css selector", ".column"))


def test_lines_of_the_open_columns_show_forty_characters(browser: Browser) -> None:
    browser.driver.set_window_size(1600, 900)
    browser.open(record_of(RMSNORM))
    assert browser.js(
        "[...document.querySelectorAll('.column:not([hidden]) .lines')].every((one) => one.clientWidth > 40 * 8)"
    )


def test_a_column_that_opens_is_as_high_as_its_lines(browser: Browser) -> None:
    record = record_of(RMSNORM)
    record["columns"][5].update(lines=["int n;"] * 1600, units=[[line, "k"] for line in range(0, 1600, 400)])
    browser.open(record)
    opened = "document.querySelectorAll('.bar .chip')[5].click(), rows[5][0].closest('.lines').scrollHeight"
    whole, one = browser.js(f"[({opened}), rows[5][0].offsetHeight]")  # before the browser has painted a line
    assert 1600 * one <= whole < 1650 * one, (whole, one)


def test_the_effect_of_a_firing_has_its_own_column(browser: Browser) -> None:
    browser.open(record_of(RMSNORM))
    browser.tab("timeline")
    rows = browser.js(
        "[...document.querySelectorAll('.event .gain')].map((one) => [...one.children].map((part) => part.textContent))"
    )
    times, changes = zip(*rows, strict=True)
    assert any("µs" in time for time in times) and not any("%" in time or "×" in time for time in times)
    assert any("%" in change or "×" in change for change in changes) and not any("µs" in change for change in changes)


# ---- The timeline and the kernels.


def test_the_timeline_tells_diffs_guards_and_gains(browser: Browser) -> None:
    record = record_of(RMSNORM)
    browser.open(record)
    said = browser.tab("timeline")
    number = next(n for n, event in enumerate(record["trace"]) if event["rule"] == "cooperative_reduce")
    browser.until(f"document.querySelector('#e{number} pre .add') !== null")
    row = browser.find(f"#e{number}").text
    assert "256" in row and "occupancy" in row and "(i:32=THREAD)" in row
    shown = browser.js(f"[...document.querySelectorAll('#e{number} pre span')].map((s) => s.textContent)")
    assert "\n".join(shown) == record["trace"][number]["diff"]
    refused = next(
        event for event in record["trace"] if event["event"] == "skipped" and "matched, but" in event["reason"]
    )
    _, named, reason = refused["reason"].partition(f": {refused['rule']}: ")  # file and rule stand in what opens
    assert named and f"{refused['unit']}: {reason}" in said


def test_the_timeline_says_what_the_gain_of_a_level_is_of(browser: Browser) -> None:
    record = record_of(ATTENTION)
    browser.open(record)
    for level, said in (("l", "the default order makes of these loop nests"), ("k", "the Tile IR that it was lowered")):
        number = next(n for n, one in enumerate(record["trace"]) if (one["level"], one["event"]) == (level, "fired"))
        browser.js(f"openEvent({number})")
        browser.until(f"document.querySelector('#e{number} .wide table') !== null")
        text = browser.find(f"#e{number}").text
        assert said in text and "shared memory" in text and re.search(r"registers of a thread.* \d+ .*\d", text)


def test_ten_thousand_events_scroll_and_one_is_opened_while_they_are_listed(browser: Browser) -> None:
    record = record_of(RMSNORM)
    record["trace"] = [event for event in record["trace"] if event["rule"] == "cooperative_reduce"] * 10_000
    browser.open(record)
    browser.js("openEvent(399)")  # the last one of those listed at once
    browser.until("document.querySelectorAll('.event').length === 10000")
    place = browser.js("document.querySelector('#e399 summary').getBoundingClientRect().top / innerHeight")
    assert 0.2 < place < 0.8 and browser.js("document.activeElement.parentNode.id") == "e399"
    last = "document.getElementById('e9999')"
    assert browser.js(f"getComputedStyle({last}).contentVisibility") == "auto"  # what is not seen is not laid out
    browser.js("find('main').scrollTop = find('main').scrollHeight")
    browser.until(f"{last}.getBoundingClientRect().top < innerHeight + 200")


def test_registers_say_who_measured_them(browser: Browser) -> None:
    record = record_of(RMSNORM)
    browser.open(record)
    said = browser.tab("kernels")
    assert "nothing here was measured." in said and "registers a thread (predicted)" in said and "assembler" not in said
    record["kernels"][0]["assembled"] = {"registers": 42, "spill_bytes": 0, "by": "nvrtc 13.5"}
    browser.open(record)
    said = browser.tab("kernels")
    assert "42 registers a thread, measured by the assembler (nvrtc 13.5, " in said
    assert "nothing here was measured but registers, by the assembler" in said


# ---- The e-graph.


def test_the_e_graph_is_walked(browser: Browser, searched: Record) -> None:
    browser.open(searched)
    browser.tab("egraph")
    link = browser.find(".eclass .link")
    link.click()
    assert browser.js("document.activeElement.ariaLabel") == f"class {link.text}"


# ---- All views.

VIEWS = ("program", "timeline", "kernels", "fusion", "egraph")


def test_nothing_overflows(browser: Browser, searched: Record) -> None:
    browser.open(searched)
    for width in (1600, 1280, 420):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for view in VIEWS:
            browser.tab(view)
            assert not browser.overflows(), (view, width)
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_text_stands_out_in_both_schemes(browser: Browser) -> None:
    """At least 4.5 to 1 of luminance for every colour of text, as WCAG AA asks."""
    weak = """
    const light = (name) => {
      const probe = document.createElement('i'); probe.style.color = `var(--${name})`; document.body.append(probe);
      const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).map(Number); probe.remove();
      const [r, g, b] = parts.map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    return arguments[0].filter((pair) => {
      const [a, b] = pair.map(light); return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5; });
    """
    fronts = ["ink", "quiet", "word", "number", "name", "remark", "good", "bad", "accent"]
    pairs = [(front, back) for front in fronts for back in ("ground", "sheet")]
    pairs += [("ink", back) for back in ("hit", "chosen", "add", "drop")]
    browser.open(record_of(RMSNORM))
    for scheme in ("light", "dark", ""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        assert browser.driver.execute_script(weak, pairs) == [], scheme


SPOKEN = {
    "button", "checkbox", "combobox", "link", "listbox", "option", "searchbox", "slider", "spinbutton", "tab", "textbox",
}  # fmt: skip
SILENT = {"RootWebArea", "main", "tabpanel", "generic"}


def unnamed(browser: Browser) -> list[str]:
    """What a screen reader could only call by its role: parts of the page that act, or that the keyboard comes to."""
    found = []
    for node in browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]:
        role, name = (node.get(key, {}).get("value", "") for key in ("role", "name"))
        reached = any(one["name"] == "focusable" and one["value"]["value"] for one in node.get("properties", ()))
        if (role in SPOKEN or (reached and role not in SILENT)) and not node.get("ignored") and not name.strip():
            found.append(f"{role} {node.get('backendDOMNodeId')}")
    return found


def test_all_that_acts_has_a_name_for_a_screen_reader(browser: Browser, searched: Record) -> None:
    shown = LivePage("")
    shown.report(searched)
    parameters = [{"name": "T", "now": "4", "values": ["2", "4"]}, {"name": "MOST", "now": "32", "values": []}]
    with browser.live(shown, SimpleNamespace(parameters=lambda rule: parameters)):
        assert browser.js("document.querySelectorAll('.cost').length")  # of --check
        tabs = browser.js("[...document.querySelectorAll('#tabs button')].map((tab) => tab.id.slice(4))")
        assert tabs == [*VIEWS[:4], "rules", *VIEWS[4:]]
        for tab in (*tabs, "rules"):
            browser.tab(tab)
            if tab == "rules":
                browser.find("[data-parameters]").click()
                browser.until("document.querySelector('[data-parameter]') !== null")
            assert unnamed(browser) == [], tab
            acting = "[...document.querySelectorAll('[role=button], .link, svg g[onclick]')]"
            assert browser.js(f"{acting}.filter((x) => x.tabIndex < 0).length") == 0, tab  # a key reaches it, too


MARKUP = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>"
GIVEN = ("rules", "bound", "parameters")  # by the names of rules and of their variables


def marked(value: Any, of: str = "") -> Any:
    """A record in which every text and name that a program or a rule gave holds markup."""
    if isinstance(value, dict):
        return {
            key + MARKUP * (of in GIVEN): item if key in ("event", "level") else marked(item, key)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [marked(item) for item in value]
    return value + MARKUP if isinstance(value, str) else value


def test_markup_stays_text(browser: Browser, searched: Record) -> None:
    shown = LivePage(MARKUP)
    shown.report(marked(searched))
    with browser.live(shown):
        switches = {"without": [MARKUP], "settings": [MARKUP]}
        shown.report({"switches": switches}, diff=f"-{MARKUP}\n+{MARKUP}", why=MARKUP)
        browser.until("document.getElementById('banner').textContent.includes('onerror')")
        shown.show(stages=[{"text": MARKUP, "ms": None, "now": True}])
        browser.until("document.querySelector('#stages .now') !== null")
        for view in (*VIEWS, "rules"):
            assert "onerror" in browser.tab(view), view
            if view == "program":
                browser.js("choose(6, 30, true)")
            assert browser.js("document.querySelectorAll('img, main script').length") == 0, view
        shown.report({}, error=MARKUP, why=MARKUP)
        browser.until("document.getElementById('banner').className === 'bad'")
        assert browser.find("#banner").text == MARKUP
        assert browser.js("document.querySelectorAll('img').length + document.scripts.length") == 2
        assert browser.driver.title != "broken"


# ---- The live page.


def test_the_live_page_follows_a_rule_file_and_its_switches(browser: Browser, tmp_path: Path) -> None:
    (file := tmp_path / "my.rw").write_text("# no rule yet\n")
    program = LiveProgram(capture_text(EXPONENTIALS), LivePage(EXPONENTIALS), [file], (), target())
    program.compile("started")
    stop = threading.Event()
    watcher = threading.Thread(target=program.watch, args=(stop, print))
    watcher.start()
    fires = "data.trace.some((event) => event.rule === 'product_of_exponentials' && event.event === 'fired')"
    try:
        with browser.live(program.shown, program), closing(program):
            browser.find("#tab-rules").click()
            file.write_text(RULE)
            browser.until(fires)
            assert "my.rw changed" in browser.until("document.getElementById('banner').textContent")
            browser.until("document.querySelector('#difference pre .drop') !== null")
            browser.find("input[data-rule=product_of_exponentials]").click()
            browser.until(f"!{fires}")
            browser.find("#reset").click()
            browser.until("data.switches.without.length === 0")
            file.write_text(RULE + "rule\n")
            browser.until("document.getElementById('banner').className === 'bad'")
            assert "my.rw:" in browser.find("#banner").text
    finally:
        stop.set()
        watcher.join()


def test_a_page_that_is_open_before_the_compile_fills_itself(browser: Browser) -> None:
    shown = LivePage(RMSNORM)
    shown.begin("pytorch")
    program = LiveProgram(capture_text(RMSNORM), shown, [], (), target())
    with browser.live(shown) as server, closing(program):
        now = "document.querySelector('#stages .now')?.textContent"
        assert "loading PyTorch" in browser.until(now)
        shown.begin("capture")
        browser.until(f"{now}.includes('capturing')")
        assert "✓ loading PyTorch" in browser.find("#stages").text
        shown.show(columns=column_records([Column("torch", ["growing"])]))
        browser.until("document.querySelector('.column .ln')?.textContent.includes('growing')")
        server.program = program
        program.compile("started")
        browser.until("document.querySelectorAll('.column').length === 7")
        assert not browser.find("#stages").is_displayed() and not browser.find("#banner").is_displayed()
        browser.find("#tab-timeline").click()
        browser.until("[...document.querySelectorAll('.gain')].some((one) => one.textContent.includes('µs'))")
        browser.find("#tab-egraph").click()
        browser.find("#explore").click()
        browser.until("data.egraph && document.querySelector('#main .eclass')")
        assert browser.js("document.activeElement.id") == "explore"
        # one message may bring several parts
        for parts in ("egraph effects", "egraph columns", "egraph kernels", "effects"):
            brought = f"Object.fromEntries('{parts}'.split(' ').map((part) => [part, data[part]]))"
            browser.js(f"hear({{ ...news, data: {brought} }})")
            assert browser.js("document.activeElement.id") == "explore", parts
        browser.js("(find('tab-egraph').focus(), hear({ ...news, data: { egraph: data.egraph } }))")
        assert browser.js("document.activeElement.id") == "tab-egraph"
