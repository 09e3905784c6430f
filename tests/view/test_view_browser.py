"""The page in a real browser: Chromium, driven by selenium. Skipped, with the reason, where either is missing."""

from __future__ import annotations

import json
import math
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from view_programs import EXPONENTIALS, PROGRAMS, RULE

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.cli.app import main
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.view.live_program import LiveProgram
from dplc.engine.view.provenance import Column, column_records
from dplc.engine.view.records import suite_record, view_record
from dplc.engine.view.server import LivePage, PageServer, SearchRequest, page

pytest.importorskip("selenium", reason="selenium is not installed: pip install -e '.[dev]'")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (BROWSER and DRIVER), reason="no chromium and chromedriver here: apt install chromium-driver"
    ),
]
Compile = Callable[[str], Compilation]
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1500,900"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def record_of(compiled: Compile, name: str) -> dict[str, Any]:
    return view_record(compiled(PROGRAMS[name][0]), PROGRAMS[name][0])


def opened(browser: Any, path: Path, record: dict[str, Any]) -> Any:
    path.write_text(page(record))
    browser.get(path.as_uri())
    complaints(browser)
    return browser


def complaints(browser: Any) -> None:
    """Nothing failed, and no policy was broken."""
    assert [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@contextmanager
def served(browser: Any, shown: LivePage) -> Iterator[PageServer]:
    """A page on a server, until the browser has left it."""
    server = PageServer(shown)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        browser.get("about:blank")
        server.shutdown()
        server.server_close()
        thread.join()


def until(browser: Any, expression: str, seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = browser.execute_script(f"return {expression}")
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"never true: {expression}")


def test_a_line_of_cuda_lights_up_all_the_way(browser: Any, compiled: Compile, tmp_path: Path) -> None:
    opened(browser, tmp_path / "page.html", record_of(compiled, "steps"))
    lines = browser.execute_script("return data.columns.map((column) => column.lines)")
    (place,) = [n for n, line in enumerate(lines[-1]) if "sinf(" in line]
    browser.execute_script(f"document.getElementById('l6-{place}').click()")
    lit = browser.execute_script("return [...document.querySelectorAll('.ln.on')].map((row) => row.id)")
    by_column = [{int(row.split("-")[1]) for row in lit if row.startswith(f"l{n}-")} for n in range(7)]
    assert by_column[0] == {2}
    assert [lines[1][n].split(":")[0].strip() for n in by_column[1]] == ["sin_1"]
    assert place in by_column[6] and all(by_column)
    assert "CUDA" in browser.find_element("id", "said").text or browser.execute_script(
        "return document.getElementById('said').textContent"
    )
    browser.execute_script("document.getElementById('l0-2').click()")  # and down again
    down = browser.execute_script("return [...document.querySelectorAll('.ln.on')].map((row) => row.id)")
    assert f"l6-{place}" in down


def test_keys_walk_lines_and_links(browser: Any, compiled: Compile, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, tmp_path / "page.html", record_of(compiled, "rmsnorm"))
    column = browser.find_elements("css selector", ".lines")[6]
    column.send_keys(Keys.HOME, *[Keys.ARROW_DOWN] * 8)
    assert column.get_attribute("aria-activedescendant") == "l6-8"
    column.send_keys(Keys.ARROW_LEFT)
    assert browser.execute_script("return document.activeElement.getAttribute('aria-label')") == "Kernel IR, lines"
    browser.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert browser.execute_script("return document.activeElement.getAttribute('aria-label')") == "Tile IR, lines"
    selected = browser.find_elements("css selector", "[aria-selected=true].ln")
    assert len(selected) == 1
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.execute_script("return document.activeElement.className") == "chip"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    until(browser, "document.querySelector('.event[open] pre') !== null")
    browser.find_element("id", "tab-timeline").send_keys(Keys.ARROW_RIGHT)
    assert browser.execute_script("return document.activeElement.id") == "tab-kernels"


def test_the_timeline_tells_diffs_guards_and_gains(browser: Any, compiled: Compile, tmp_path: Path) -> None:
    record = record_of(compiled, "rmsnorm")
    opened(browser, tmp_path / "page.html", record)
    browser.find_element("id", "tab-timeline").click()
    until(browser, "document.querySelectorAll('.event').length > 5")
    number = next(n for n, event in enumerate(record["trace"]) if event["rule"] == "cooperative_reduce")
    row = browser.find_element("id", f"e{number}")
    row.find_element("css selector", "summary").click()
    until(browser, f"document.querySelector('#e{number} pre .add') !== null")
    assert "256" in row.text and "occupancy" in row.text
    row.find_element("css selector", ".bound summary").click()
    assert "(i:32=THREAD)" in row.find_element("css selector", ".bound dl").text
    shown = browser.execute_script(
        f"return [...document.querySelectorAll('#e{number} pre span')].map((s) => s.textContent)"
    )
    assert "\n".join(shown) == record["trace"][number]["diff"]
    refused = next(
        event for event in record["trace"] if event["event"] == "skipped" and "matched, but" in event["reason"]
    )
    _, named, reason = refused["reason"].partition(f": {refused['rule']}: ")  # file and rule stand in what opens
    assert named and f"{refused['unit']}: {reason}" in browser.find_element("id", "events").text


def test_the_timeline_says_what_the_gain_of_a_level_is_of(browser: Any, compiled: Compile, tmp_path: Path) -> None:
    record = view_record(compiled(PROGRAMS["attention"][0]), "attention", seconds=math.inf)
    opened(browser, tmp_path / "page.html", record)
    for level, said in (("l", "the default order makes of these loop nests"), ("k", "the Tile IR that it was lowered")):
        number = next(n for n, one in enumerate(record["trace"]) if one["level"] == level and one["event"] == "fired")
        browser.execute_script(f"openEvent({number})")
        until(browser, f"document.querySelector('#e{number} .wide table') !== null")
        text = browser.find_element("id", f"e{number}").text
        assert said in text and "shared memory" in text and re.search(r"registers of a thread.* \d+ .*\d", text)


def test_an_event_is_opened_in_the_middle_though_the_rest_is_not_listed_yet(
    browser: Any, compiled: Compile, tmp_path: Path
) -> None:
    record = record_of(compiled, "rmsnorm")
    fired = next(event for event in record["trace"] if event["rule"] == "cooperative_reduce")
    record["trace"] = [fired] * 700
    opened(browser, tmp_path / "page.html", record)
    browser.execute_script("openEvent(399)")  # the last one of those listed at once
    until(browser, "document.querySelectorAll('.event').length === 700")
    head = "document.querySelector('#e399 summary').getBoundingClientRect()"
    assert 0.2 < browser.execute_script(f"return {head}.top / innerHeight") < 0.8
    assert browser.execute_script("return document.activeElement.parentNode.id") == "e399"


def test_registers_say_who_measured_them(browser: Any, compiled: Compile, tmp_path: Path) -> None:
    record = record_of(compiled, "rmsnorm")
    opened(browser, tmp_path / "page.html", record)
    browser.find_element("id", "tab-kernels").click()
    said = browser.find_element("id", "main").text
    assert "nothing here was measured." in said and "registers a thread (predicted)" in said and "assembler" not in said
    record["kernels"][0]["assembled"] = {"registers": 42, "spill_bytes": 0, "by": "nvrtc 13.5"}
    opened(browser, tmp_path / "page.html", record)
    browser.find_element("id", "tab-kernels").click()
    said = browser.find_element("id", "main").text
    assert "42 registers a thread, measured by the assembler (nvrtc 13.5, " in said
    assert "nothing here was measured but registers, by the assembler" in said


def test_a_column_can_be_hidden(browser: Any, compiled: Compile, tmp_path: Path) -> None:
    opened(browser, tmp_path / "page.html", record_of(compiled, "rmsnorm"))
    boxes, switches = (browser.find_elements("css selector", f"{one}") for one in (".column", ".bar .chip"))
    switches[3].click()
    assert [box.is_displayed() for box in boxes] == [place != 3 for place in range(7)]
    assert switches[3].get_attribute("aria-pressed") == "false"
    switches[3].click()
    assert boxes[3].is_displayed()


@pytest.mark.parametrize("width", [1500, 420])
@pytest.mark.parametrize("view", ["program", "timeline", "kernels", "fusion"])
@pytest.mark.sampled(2)
def test_nothing_overflows(browser: Any, compiled: Compile, tmp_path: Path, view: str, width: int) -> None:
    opened(browser, tmp_path / "page.html", record_of(compiled, "attention"))
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.find_element("id", f"tab-{view}").click()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(f"return {wide}") <= 0
    outside = (
        "[...document.querySelectorAll('pre, table, .card, .inspect, header, nav')].filter((x) => "
        "x.getBoundingClientRect().right > innerWidth + 1 && !x.closest('.wide, .graph, .columns')).length"
    )
    assert browser.execute_script(f"return {outside}") == 0
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    complaints(browser)


def test_searches_are_shown_and_walked(browser: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        text = "torch.softmax(torch.randn(64, 512) @ torch.randn(512, 64) * 2.0, -1)"
        main(["view", "-c", text, "--explore", "--tune", "12", "--no-db", "-o", str(tmp_path / "page.html")])
    browser.get((tmp_path / "page.html").as_uri())
    for width in (1500, 420):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for view in ("tuning", "egraph"):
            browser.find_element("id", f"tab-{view}").click()
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert browser.execute_script(f"return {wide}") <= 0, (view, width)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    link = browser.find_element("css selector", ".eclass .link")
    link.click()
    focused = browser.execute_script("return document.activeElement.getAttribute('aria-label')")
    assert focused == f"class {link.text}"
    browser.find_element("id", "tab-tuning").click()
    assert "Best time over tries" in browser.find_element("css selector", "#main svg").get_attribute("aria-label")
    browser.find_element("css selector", ".tuned summary").click()
    complaints(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(browser: Any, compiled: Compile, tmp_path: Path, scheme: str) -> None:
    """At least 4.5 to 1 of luminance for every colour of text, as WCAG AA asks."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    opened(browser, tmp_path / "page.html", record_of(compiled, "rmsnorm"))
    ratio = """
    const light = (name) => {
      const probe = document.createElement('i'); probe.style.color = `var(--${name})`; document.body.append(probe);
      const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).map(Number); probe.remove();
      const [r, g, b] = parts.map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    return arguments[0].flatMap((front) => arguments[1].map((back) => {
      const [a, b] = [light(front), light(back)]; return [front, back, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)]; }));
    """
    fronts = ["ink", "quiet", "word", "number", "name", "remark", "good", "bad", "accent"]
    weak = [found for found in browser.execute_script(ratio, fronts, ["ground", "sheet"]) if found[2] < 4.5]
    assert weak == []
    lit = [
        found for found in browser.execute_script(ratio, ["ink"], ["hit", "chosen", "add", "drop"]) if found[2] < 4.5
    ]
    assert lit == []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_trace_of_ten_thousand_lines_scrolls(browser: Any, compiled: Compile, tmp_path: Path) -> None:
    record = record_of(compiled, "rmsnorm")
    record["trace"] = [record["trace"][n % len(record["trace"])] for n in range(10_000)]
    opened(browser, tmp_path / "page.html", record)
    browser.execute_script("filter.kinds.add('skipped'); openTab('timeline')")
    until(browser, "document.querySelectorAll('.event').length === 10000", 60)
    lazy = "return getComputedStyle(document.getElementById('e9999')).contentVisibility"
    assert browser.execute_script(lazy) == "auto"  # what is not seen is not laid out
    browser.execute_script("const m = document.getElementById('main'); m.scrollTop = m.scrollHeight")
    until(browser, "document.getElementById('e9999').getBoundingClientRect().top < innerHeight + 200")


SUITE = {
    "about": "two cases <b>&</b>",
    "operations": {"sum": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
    "cases": [
        {"name": "small", "operation": "sum", "sizes": {"rows": 32, "in": 64, "out": 48}},
        {"name": "large", "operation": "sum", "sizes": {"rows": 512, "in": 512, "out": 512}},
    ],
}


def test_a_suite_is_a_map(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text(json.dumps(SUITE))
    record = suite_record(tmp_path / "suite.json", compiler_with(target()), lambda *_: None)
    opened(browser, tmp_path / "page.html", record)
    rows = browser.execute_script("return [...document.querySelectorAll('.heat tbody tr')].map((r) => r.innerText)")
    fired = record["heat"]["cases"][0]["fired"]
    assert fired["tileify"][0] == 1 and any(row.split()[:2] == ["tileify", "1"] for row in rows)
    assert browser.execute_script("return document.querySelectorAll('b').length") == 0
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(f"return {wide}") <= 0


MARKUP = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>"


def marked(value: Any) -> Any:
    """A record in which every text that a program or a rule gave holds markup."""
    if isinstance(value, str):
        return value + MARKUP
    if isinstance(value, list):
        return [marked(item) for item in value]
    return {key: marked(item) for key, item in value.items()} if isinstance(value, dict) else value


def test_markup_in_names_stays_text(browser: Any, compiled: Compile, tmp_path: Path) -> None:
    record = record_of(compiled, "attention")
    for event in record["trace"]:
        kept = {key: event[key] for key in ("event", "level")}
        event.update(marked(event) | kept)
    for column in record["columns"]:
        column["lines"] = marked(column["lines"])
        column["units"] = [[line, name + MARKUP] for line, name in column["units"]]
    record["rules"] = {marked(name): marked(rule) for name, rule in record["rules"].items()}
    record["kernels"] = [{**kernel, "name": marked(kernel["name"])} for kernel in record["kernels"]]
    record["fusion"] = marked(record["fusion"])
    record["title"] = marked(record["title"])
    opened(browser, tmp_path / "page.html", record)
    for view in ("program", "timeline", "kernels", "fusion"):
        browser.find_element("id", f"tab-{view}").click()
        browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        if view == "program":
            browser.execute_script("choose(6, 30, true)")
        time.sleep(0.1)
        assert browser.execute_script("return document.querySelectorAll('img').length") == 0
        assert browser.execute_script("return document.scripts.length") == 2
    assert "broken" not in browser.title.replace(MARKUP, "") and browser.title != "broken"
    complaints(browser)


def test_the_live_page_follows_a_rule_file_and_its_switches(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "my.rw"
    file.write_text("# no rule yet\n")
    program = LiveProgram(capture_text(EXPONENTIALS), LivePage(EXPONENTIALS), [file], (), target())
    program.compile("started")
    server, stop = PageServer(program.shown), threading.Event()
    server.program = program
    threads = [
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}),
        threading.Thread(target=program.watch, args=(stop, print)),
    ]
    for thread in threads:
        thread.start()
    try:
        browser.get(server.url)
        browser.find_element("id", "tab-rules").click()
        file.write_text(RULE)
        until(
            browser, "data.trace.some((event) => event.rule === 'product_of_exponentials' && event.event === 'fired')"
        )
        assert "my.rw changed" in until(browser, "document.getElementById('banner').textContent")
        until(browser, "document.querySelector('#difference pre .drop') !== null")
        browser.find_element("css selector", "input[data-rule=product_of_exponentials]").click()
        until(
            browser, "!data.trace.some((event) => event.rule === 'product_of_exponentials' && event.event === 'fired')"
        )
        browser.find_element("id", "reset").click()
        until(browser, "data.switches.without.length === 0")
        file.write_text(RULE + "rule\n")
        until(browser, "document.getElementById('banner').className === 'bad'")
        assert "my.rw:" in browser.find_element("id", "banner").text
        complaints(browser)
    finally:
        browser.get("about:blank")
        program.close()
        stop.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join()


def test_a_page_that_is_open_before_the_compile_fills_itself(browser: Any) -> None:
    text = PROGRAMS["rmsnorm"][0]
    shown = LivePage(text)
    shown.begin("pytorch")
    program = LiveProgram(capture_text(text), shown, [], (), target())
    with served(browser, shown) as server, closing(program):
        browser.get(server.url)
        assert "loading PyTorch" in until(browser, "document.querySelector('#stages .now')?.textContent")
        shown.begin("capture")
        until(browser, "document.querySelector('#stages .now')?.textContent.includes('capturing')")
        assert "✓ loading PyTorch" in browser.find_element("id", "stages").text
        shown.show(columns=column_records([Column("torch", ["growing"])]))
        until(browser, "document.querySelector('.column .ln')?.textContent.includes('growing')")
        server.program = program
        program.compile("started")
        until(browser, "document.querySelectorAll('.column').length === 7")
        assert not browser.find_element("id", "stages").is_displayed()
        assert not browser.find_element("id", "banner").is_displayed()
        browser.find_element("id", "tab-timeline").click()
        until(browser, "[...document.querySelectorAll('.gain')].some((one) => one.textContent.includes('µs'))")
        browser.find_element("id", "tab-tuning").click()
        typed = "const t = document.getElementById('tries'); t.value = 30; t.dispatchEvent(new Event('input'))"
        browser.execute_script(f"{typed}; document.getElementById('search').focus()")
        browser.find_element("id", "search").click()
        until(browser, "data.tuning && !data.tuning.running && document.querySelector('#main svg .best')")
        assert "30 tries" in browser.find_element("id", "main").text
        assert browser.execute_script("return document.activeElement.id") == "search"
        for parts in (
            "tuning effects",
            "tuning columns",
            "tuning kernels counted",
            "effects",
        ):  # one message may bring them
            news = f"Object.fromEntries('{parts}'.split(' ').map((part) => [part, data[part]]))"
            browser.execute_script(f"hear({{ ...news, data: {news} }})")
            assert browser.execute_script("return document.activeElement.id") == "search", parts
        browser.execute_script("find('tab-tuning').focus(); hear({ ...news, data: { tuning: data.tuning } })")
        assert browser.execute_script("return document.activeElement.id") == "tab-tuning"
        assert browser.find_element("id", "tries").get_attribute("value") == "30"
        complaints(browser)


SPOKEN = {
    "button",
    "checkbox",
    "combobox",
    "link",
    "listbox",
    "option",
    "searchbox",
    "slider",
    "spinbutton",
    "tab",
    "textbox",
}


def unnamed(browser: Any) -> list[str]:
    """What a screen reader could only call by its role: parts of the page that act, or that the keyboard comes to."""
    found = []
    for node in browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]:
        role = node.get("role", {}).get("value", "")
        reached = any(one["name"] == "focusable" and one["value"]["value"] for one in node.get("properties", ()))
        spoken = role in SPOKEN or (reached and role not in ("RootWebArea", "main", "tabpanel", "generic"))
        if spoken and not node.get("ignored") and not node.get("name", {}).get("value", "").strip():
            found.append(f"{role} {node.get('backendDOMNodeId')}")
    return found


def test_all_that_acts_has_a_name_for_a_screen_reader(browser: Any, compiled: Compile, tmp_path: Path) -> None:
    text = PROGRAMS["attention"][0]
    program = LiveProgram(
        capture_text(text), LivePage(text), [], (), target(), searches=SearchRequest(8, True), check=True
    )
    with served(browser, program.shown) as server, closing(program):
        server.program = program
        program.compile("started")
        browser.get(server.url)
        until(browser, "document.querySelector('.cost') !== null", 120)  # of --check, beside the lines that are there
        until(browser, "data.egraph && data.tuning && !data.tuning.running", 120)
        tabs = [tab.get_attribute("id") for tab in browser.find_elements("css selector", "#tabs button")]
        assert tabs == [f"tab-{n}" for n in ("program", "timeline", "kernels", "fusion", "rules", "tuning", "egraph")]
        for tab in tabs:
            browser.find_element("id", tab).click()
            browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            assert unnamed(browser) == [], tab
            roles = (
                "[...document.querySelectorAll('[role=button], .link, svg g[onclick]')].filter((x) => x.tabIndex < 0)"
            )
            assert browser.execute_script(f"return {roles}.length") == 0, tab  # what a click reaches, a key does
        browser.find_element("id", "tab-rules").click()
        browser.find_element("css selector", "[data-parameters=tensor_tile], [data-parameters]").click()
        until(browser, "document.querySelector('[data-parameter]') !== null")
        assert unnamed(browser) == []
        complaints(browser)


def test_markup_in_news_and_searches_stays_text(browser: Any, compiled: Compile) -> None:
    record = record_of(compiled, "rmsnorm")
    node = {"label": MARKUP, "tried": 1, "without": 0, "best": 1.0, "mean": 1.0, "below": []}
    kernel = {
        "kernel": MARKUP, "count": 1, "default_us": 1.0, "tuned_us": 1.0,
        "schedule": [{"pass": MARKUP, "rule": MARKUP, "site": MARKUP, "parameters": {MARKUP: MARKUP}}],
        "effects": [{"title": MARKUP, "values": [{"value": MARKUP, "tried": 1, "without": 0, "best": 1.0, "mean": None}]}],
    }  # fmt: skip
    tuning = {
        "search": MARKUP, "basis": MARKUP, "tries": 1, "programs": 1, "refused": 0, "failed": 0, "repeated": 0,
        "seconds": 1.0, "limit": 2, "default_us": 1.0, "tuned_us": 1.0, "running": True, "curve": [[1, 1, 1.0]],
        "tree": {**node, "below": [node]}, "kernels": [kernel],
    }  # fmt: skip
    spelling = {"chosen": True, "text": MARKUP}
    held = {
        "title": MARKUP, "dtype": MARKUP, "axes": MARKUP, "stored": True, "needed": True, "known": True,
        "spellings": [spelling],
    }  # fmt: skip
    region = {
        "times": 2, "classes": [held], "enodes": 1, "operations": 1, "stop": MARKUP, "kernels": [MARKUP],
        "rules": [MARKUP],
    }  # fmt: skip
    candidate = {"label": MARKUP, "kernels": 1, "bytes": 1, "predicted_us": 1.0, "rules": [MARKUP], "problem": MARKUP}
    egraph = {"regions": [region], "left_out": 0, "candidates": [candidate]}
    shown = LivePage(MARKUP)
    with served(browser, shown) as server:
        browser.get(server.url)
        shown.show(stages=[{"text": MARKUP, "ms": None, "now": True}])
        until(browser, "document.querySelector('#stages .now') !== null")
        parts = {**record, "stages": None, "switches": {"without": [MARKUP], "settings": [MARKUP]}}
        shown.report({**parts, "tuning": tuning, "egraph": egraph}, diff=f"-{MARKUP}\n+{MARKUP}", why=MARKUP)
        until(browser, "data.egraph && document.getElementById('tab-egraph')")
        for view in ("rules", "tuning", "egraph"):
            browser.find_element("id", f"tab-{view}").click()
            assert "onerror" in browser.find_element("id", "main").text
            assert browser.execute_script("return document.querySelectorAll('img, main script').length") == 0
        shown.report({}, error=MARKUP, why=MARKUP)
        until(browser, "document.getElementById('banner').className === 'bad'")
        assert browser.find_element("id", "banner").text == MARKUP
        assert browser.execute_script("return document.querySelectorAll('img').length + document.scripts.length") == 2
        assert browser.title != "broken"
        complaints(browser)
