"""Headless Chromium as the tests use it: a page opened at a width and a colour scheme, and what it did meanwhile."""

import base64
import json
import tempfile
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

# As root there is no sandbox; the rest keeps Chromium from calling home, and any other host cannot be found.
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


@contextmanager
def chromium():
    """A browser of its own profile, ended with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # The driver is named, so that selenium does not go looking for one to download.
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        try:
            yield driver
        finally:
            driver.quit()


class Visit:
    """A page that has been opened and drawn.

    Attributes:
        console: what was written to the console, errors of the security policy included.
        requests: the addresses that the page asked for, itself and data inside it aside.
    """

    def __init__(self, driver, path, width=1280, dark=False):
        self.driver, self.address = driver, path.as_uri()
        driver.get("about:blank")
        driver.get_log("browser"), driver.get_log("performance")
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.scheme(dark)
        driver.get(self.address)

    def scheme(self, dark):
        """Switch between light and dark, as a system would."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})

    def drawn(self):
        """Wait until every figure has been drawn."""
        WebDriverWait(self.driver, 30).until(lambda _: self.run("return document.documentElement.dataset.drawn"))
        return self

    def run(self, script, *arguments):
        """The value of a script."""
        return self.driver.execute_script(script, *arguments)

    @property
    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    @property
    def requests(self):
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        asked = [event["request"]["url"] for event in sent if event["documentURL"] == self.address]
        return [url for url in asked if url != self.address and not url.startswith(("data:", "blob:"))]

    def picture(self, path):
        """The whole page as a PNG."""
        width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(taken["data"]))
        return path
