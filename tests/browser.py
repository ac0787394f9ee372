"""Headless Chromium, driven through chromedriver: https://www.w3.org/TR/webdriver2/."""

import base64
import contextlib
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --window-size=900,1100"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element's identity, by section 12.1 of the standard."""


class Browser:
    """One window."""

    def __init__(self, port: int):
        self._server = f"http://127.0.0.1:{port}"
        wanted = {"goog:chromeOptions": {"args": FLAGS.split(), "binary": shutil.which("chromium")}}
        wanted["goog:loggingPrefs"] = {"browser": "ALL"}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._server += f"/session/{made['sessionId']}"

    def _ask(self, method: str, path: str, body: dict | None = None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._server + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, path: Path) -> None:
        self._ask("POST", "/url", {"url": path.resolve().as_uri()})

    def run(self, script: str, *arguments):
        """What a JavaScript function body returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def _find(self, css: str) -> dict:
        return self._ask("POST", "/element", {"using": "css selector", "value": css})

    def click(self, css: str) -> None:
        """Click where a user would, which fails if the element is covered."""
        self._ask("POST", f"/element/{self._find(css)[ELEMENT]}/click", {})

    def point_at(self, css: str) -> None:
        """Move the mouse over an element."""
        move = {"type": "pointerMove", "duration": 0, "origin": self._find(css), "x": 0, "y": 0}
        self._ask("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def messages(self) -> list[str]:
        """Errors and warnings of the page."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def screenshot(self) -> bytes:
        return base64.b64decode(self._ask("GET", "/screenshot"))

    def quit(self) -> None:
        self._ask("DELETE", "")


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium; the test is skipped where there is none."""
    program = shutil.which("chromedriver")
    if program is None or shutil.which("chromium") is None:
        pytest.skip("Chromium and chromedriver are not installed")
    driver = subprocess.Popen([program, "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        line = next(line for line in driver.stdout if "on port" in line and "success" in line)
        window = Browser(int(line.rstrip(".\n").rsplit(" ", 1)[1]))
        try:
            yield window
        finally:
            window.quit()
    finally:
        driver.terminate()
        driver.wait()
        driver.stdout.close()
