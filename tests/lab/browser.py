"""A real browser without a window, and `crawler serve` for it to look at."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.world import COMMAND, LONG, wait_for, wait_for_line

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"]


@dataclass(frozen=True, slots=True)
class Served:
    """A store that is served."""

    url: str
    process: subprocess.Popen[str]
    token: str = ""

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rpartition(":")[2])

    def ask(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer; with data it is a POST."""
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=LONG) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def at(self, view: str = "") -> str:
        """The address of a view as it was printed, with the token."""
        return f"{self.url}?token={self.token}{view}"

    def json(self, path: str, status: int = 200) -> Any:
        """What an answer of this status says."""
        found, _, body = self.ask(path)
        assert found == status, body
        return json.loads(body)


@contextmanager
def serving(root: Path, *flags: str) -> Iterator[Served]:
    """`crawler serve` on a free port, as a user starts it."""
    command = [*COMMAND, "serve", str(root), "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        found = re.search(r"(http://[^\s?]+)(?:\?token=(\w+))?", wait_for_line(process, "serving"))
        assert found
        yield Served(found[1], process, found[2] or "")
    finally:
        process.kill()
        process.communicate()


class Browser:
    """Chromium, as far as the tests need it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Go to an address anew, even if only its fragment is another one."""
        self.driver.get("about:blank")
        self.driver.get(url)

    def run(self, script: str, *given: Any) -> Any:
        """What a script in the page returns."""
        return self.driver.execute_script(script, *given)

    def all(self, selector: str) -> list[str]:
        """The texts of all elements that match, as they are seen."""
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector))

    def text(self, selector: str = "main") -> str:
        return "\n".join(self.all(selector))

    def wait(self, words: str, selector: str = "main") -> str:
        """Wait until something is to be read there."""
        wait_for(lambda: words in self.text(selector), LONG / 5)
        return self.text(selector)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element that matches and has this text, as a mouse does; it may be drawn anew meanwhile."""
        from selenium.common.exceptions import StaleElementReferenceException

        def clicked() -> bool:
            try:
                found = [e for e in self.driver.find_elements("css selector", selector) if text in e.text]
                self.run("arguments[0].scrollIntoView({block: 'center'})", found[0])
                found[0].click()
            except StaleElementReferenceException:
                return False
            return True

        wait_for(clicked)

    def press(self, key: str) -> None:
        """Press a key, wherever the keyboard is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(key).perform()

    def type(self, selector: str, text: str) -> None:
        self.driver.find_element("css selector", selector).send_keys(text)

    def size(self, width: int, height: int) -> None:
        """What is inside the window is so large, as on a screen or a phone."""
        about = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", about)

    def colours(self, scheme: str) -> None:
        """Light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def complaints(self) -> list[str]:
        """What the console has said since the last time: errors of scripts, broken policies, missing files."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def asked(self) -> set[str]:
        """The addresses that the browser has asked for since the last time."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"]["request"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return {request["url"] for request in sent}


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A new browser; the test is skipped where there is none."""
    if not CHROMIUM or not DRIVER:
        pytest.skip("no chromium with its driver here: install Debian's packages chromium and chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    for flag in ["--headless", *root, *QUIET, f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
