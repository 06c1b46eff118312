"""A headless Chromium that visits the console, and the console in a process of its own.

`Browser` waits for what should be seen, with a deadline, and reports every error of a script.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from selenium import webdriver
from selenium.common.exceptions import (
    JavascriptException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.conformance.requirements import need_program

DEADLINE_S = 30.0
WIDE, NARROW = 1280, 400

_OPTIONS = [
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-proxy-server",
    f"--window-size={WIDE},900",
]


# What happens where a page is replaced while it is looked at.
_WHILE_CHANGING = (NoSuchElementException, StaleElementReferenceException, JavascriptException)


class Browser:
    """A visitor of one console.

    Attributes:
        driver: Selenium's, which drives Chromium.
    """

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self._url = url.rstrip("/")

    def open(self, address: str) -> None:
        """Go to a page."""
        self.driver.get(self._url + address)

    def text(self) -> str:
        """Return what can be read of the page, in one line."""
        return " ".join(self.find("main").text.split())

    def find(self, selector: str) -> WebElement:
        """Return the first element."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Return the texts of elements."""
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return [" ".join(element.text.split()) for element in found]

    def run(self, script: str) -> Any:
        """Return what a script returns."""
        return self.driver.execute_script(script)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def fill(self, name: str, text: str) -> None:
        """Write into a field."""
        field = self.find(f"[name={name}]")
        field.clear()
        field.send_keys(text)

    def choose(self, name: str, value: str) -> None:
        """Choose from a list, or one of several buttons."""
        self.find(
            f"select[name={name}] option[value='{value}'], [name={name}][value='{value}']"
        ).click()

    def submit(self, name: str) -> None:
        """Press the button with a text."""
        buttons = self.driver.find_elements(By.CSS_SELECTOR, "main button")
        next(button for button in buttons if button.text == name).click()

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition holds; the page may change meanwhile."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(*_WHILE_CHANGING):
                if found := condition():
                    return found
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.text()}"
            time.sleep(0.05)

    def wait_text(self, text: str) -> None:
        """Wait until the page has a text."""
        self.wait(lambda: text in self.text(), text)

    def look(self, *, width: int = WIDE, dark: bool = False, medium: str = "") -> None:
        """Show the page in a window of that width, on a dark screen, or on paper."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        for command, arguments in (
            ("Emulation.setDeviceMetricsOverride", size),
            ("Emulation.setEmulatedMedia", {"media": medium, "features": [scheme]}),
        ):
            self.driver.execute_cdp_cmd(command, arguments)

    def errors(self, *, with_status: bool = False) -> list[str]:
        """Return what went wrong in scripts since the last call, and what could not be loaded.

        Args:
            with_status: also that a page had a status of 400 or more.
        """
        found = [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]
        return [each for each in found if with_status or "the server responded with" not in each]

    def take_picture(self, name: str) -> None:
        """Save a screenshot in the folder TEST_SCREENSHOTS, if that is set."""
        folder = os.environ.get("TEST_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[webdriver.Chrome]:
    """Start a browser; the calling test is skipped where there is none."""
    program, driver = need_program("chromium"), need_program("chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    for option in [*_OPTIONS, *as_root, f"--user-data-dir={folder}"]:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield started
    finally:
        started.quit()


class ConsoleProcess:
    """`kraftrio console` of a cluster."""

    def __init__(self, bootstrap: str, folder: Path, *options: str) -> None:
        self.url = ""
        self._log_path = folder / "console.log"
        arguments = ["--bootstrap-server", bootstrap, "--listen", "127.0.0.1:0", *options]
        self._command = [sys.executable, "-P", "-m", "kraftrio", "console", *arguments]

    def __enter__(self) -> ConsoleProcess:
        with self._log_path.open("w") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        output: IO[str] = self._process.stdout
        line = output.readline()
        assert line.startswith("kraftrio console http://"), line + self._log_path.read_text()
        self.url = line.split()[2]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        code = self._process.wait(DEADLINE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        log = self._log_path.read_text()
        assert "Traceback" not in log, log
        assert code == 0, f"exit code {code}\n{log}"


ENTER, ESCAPE = Keys.ENTER, Keys.ESCAPE
