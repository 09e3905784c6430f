"""Pictures of the page of `dplc view` and of the site: `make pictures` (Chromium and selenium are needed).

A block of a decoder is compiled as by `dplc view -c .. -o FILE`, opened, and a line is chosen in it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dplc.engine.cli.options import Flags, Subject
from dplc.engine.cli.output import PAGE, write_file
from dplc.engine.cli.view import record_of
from dplc.engine.view.server import page

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
BLOCK = FOLDER / "block.txt"
WIDTH, HEIGHT = 1500, 760
LINE = "data.columns[6].lines.findIndex((line) => line.includes('exp2_approx'))"
VIEWS = {
    "program_dark.png": ("dark", f"choose(6, {LINE}, true)"),
    "timeline_light.png": (
        "light",
        "openEvent(data.trace.findIndex((event) => event.rule === 'stage_inputs' && event.event === 'fired'))",
    ),
}
SITE = {  # pages of the site that `make docs` builds
    "index": "index.html",
    "first_kernel": "tutorials/first_kernel/index.html",
    "rule": "reference/generated/groups/tile_memory/index.html#stage_inputs",
}


def browser(profile: str) -> Any:
    """A Chromium of its own."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"):
        options.add_argument(option)
    options.add_argument(f"--user-data-dir={profile}")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        text, file = BLOCK.read_text(), Path(folder) / "block.html"
        block = Flags(Subject("text", (text,)), text=text, no_db=True, target="sm_80")
        write_file(file, page(record_of(block)), PAGE)
        site = Path(folder) / "site"
        subprocess.run([sys.executable, "docs/generate.py"], cwd=ROOT, check=True)
        subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(site)], cwd=ROOT, check=True)
        driver = browser(f"{folder}/profile")
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        shots = [(name, file.as_uri(), scheme, script) for name, (scheme, script) in VIEWS.items()]
        for name, page_of_site in SITE.items():
            path, _, heading = page_of_site.partition("#")
            address = (site / path).as_uri() + (f"#{heading}" if heading else "")
            for scheme, palette in (("light", "default"), ("dark", "slate")):
                dress = f"document.body.setAttribute('data-md-color-scheme', '{palette}')"
                shots.append((f"site_{name}_{scheme}.png", address, scheme, dress))
        for name, address, scheme, script in shots:
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            driver.get(address)
            driver.execute_script(script)
            driver.execute_async_script("setTimeout(arguments[0], 1500)")
            driver.save_screenshot(str(FOLDER / name))
            print(FOLDER / name)
        driver.quit()


if __name__ == "__main__":
    sys.exit(main())
