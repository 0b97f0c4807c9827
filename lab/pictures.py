"""Pictures of the console for the documentation: ``./sluice lab pictures --server URL``.

Headless Chromium signs in to a running console with the demo and writes each page of `PAGES` in both themes as
``docs/img/NAME-THEME.png``. Run it when a page has changed, and look at what it wrote.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Error, Page, ViewportSize, sync_playwright

from lab.training.options import folder_option

__all__ = ["PAGES", "main"]

#: Name of the picture, and the links that lead to its page from the overview, each by its text.
PAGES: dict[str, tuple[str, ...]] = {
    "overview": (),
    "remedies": ("What helps",),
    "decision": ("basket-affinity v1",),
}
THEMES = ("light", "dark")

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_ROOT = Path(__file__).resolve().parent.parent
_VIEWPORT = ViewportSize(width=1280, height=900)
_WAIT_MS = 60_000


def main(arguments: Sequence[str]) -> int:
    """Write the pictures and print their paths; returns 0, 1 if the console did not answer as it should, 2 for faults
    of the arguments.
    """
    parser = argparse.ArgumentParser(
        prog="sluice lab pictures", description="Pictures of a running console with the demo, for docs/img."
    )
    parser.add_argument(
        "--server", default="http://127.0.0.1:8000", help="address of the console (default: %(default)s)"
    )
    parser.add_argument("--username", default="demo", help="who signs in (default: %(default)s)")
    parser.add_argument("--out", default=str(_ROOT / "docs" / "img"), help="folder to write to (default: docs/img)")
    options = parser.parse_args(list(arguments))
    faults: list[str] = []
    folder = folder_option(options.out, "out", faults)
    if not re.fullmatch(r"https?://[^/]+/?", options.server):
        faults.append(f"--server is {options.server!r}; allowed: an address such as http://127.0.0.1:8000")
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        faults.append(f"no browser: one of {', '.join(_BROWSERS)} has to be installed")
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    password = os.environ.get("SLUICE_PASSWORD", "sluice-demo")
    try:
        with sync_playwright() as playwright:
            running = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
            context = running.new_context(base_url=options.server, viewport=_VIEWPORT, reduced_motion="reduce")
            context.set_default_timeout(_WAIT_MS)
            page = context.new_page()
            _sign_in(page, options.username, password)
            for name, links in PAGES.items():
                page.goto("/")
                for link in links:
                    page.get_by_role("link", name=link).first.click()
                    page.wait_for_load_state()
                for path in _write(page, folder, name):
                    print(path)
    except Error as error:
        print(f"{options.server}: {error.message.splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


def _sign_in(page: Page, username: str, password: str) -> None:
    page.goto("/login/")
    page.get_by_label("Name").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/login/" not in url)


def _write(page: Page, folder: Path, name: str) -> list[Path]:
    """The page as it stands, from top to end, once per theme."""
    paths = []
    page.wait_for_load_state("networkidle")
    for theme in THEMES:
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        paths.append(folder / f"{name}-{theme}.png")
        page.screenshot(path=paths[-1])
    return paths
