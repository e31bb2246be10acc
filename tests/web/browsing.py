"""A real browser for the tests of the pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

PHONE, DESKTOP = (390, 844), (1280, 900)

# Contrast of every text with what lies behind it, after WCAG: 4.5, or 3 for large letters. Returns what falls short.
CONTRAST = """
() => {
  const numbers = (text) => text.match(/[\\d.e-]+/g).map(Number);
  const colour = (text) => {
    const [r, g, b, a = 1] = numbers(text.replace(/^color\\(srgb/, ""));
    const scale = text.startsWith("color(srgb") ? 1 : 255;
    return [r / scale, g / scale, b / scale, a];
  };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
  const light = (c) => {
    const [r, g, b] = c.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(colour(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [1, 1, 1]);
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].filter((n) => n.nodeType === 3 && n.textContent.trim());
    const style = getComputedStyle(element);
    if (!own.length || element.closest("svg, .sr, .skip") || !element.checkVisibility()) continue;
    const back = behind(element), front = over(colour(style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${own[0].textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}
"""


@contextmanager
def started() -> Iterator[Browser]:
    """The machine's Chromium or Chrome; skipped where there is none, except on CI, where that is a failure."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no browser; `scripts/browser-for-tests` installs one")
        pytest.skip("no browser; `scripts/browser-for-tests` installs one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, size: tuple[int, int] = PHONE, **settings: Any) -> Iterator[Page]:
    """A page of a browser with nothing in its memory. Ends with an error where one happened in the page."""
    context: BrowserContext = browser.new_context(viewport={"width": size[0], "height": size[1]}, **settings)
    context.set_default_timeout(20_000)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if _is_trouble(message.text) else None)
    try:
        yield page
    finally:
        context.close()
    assert not troubles


def _is_trouble(text: str) -> bool:
    """Whatever the browser would not do; a lost connection is part of the tests."""
    return any(word in text for word in ("Content Security Policy", "Refused to", "Uncaught", "SyntaxError"))
