"""A headless Chromium with one page, driven by its own protocol over two pipes: no driver and no port."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import selectors
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
ANSWERS_WITHIN_S: Final = 120
# It reads commands from descriptor 3 and writes to 4; these are the first that a shell can move there.
_FIRST_FREE: Final = 10
# Nothing that it does for its maker: updates, lookups, a first page.
_FLAGS: Final = (
    "--headless",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1280,900",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


class Chromium:
    """One page of it.  `requested_urls` has every URL that the page has requested."""

    def __init__(self, program: str, profile: Path) -> None:
        self._program = program
        self._profile = profile
        self._calls_count = 0
        self._session: str | None = None
        self._received = b""
        self.requested_urls: list[str] = []

    def __enter__(self) -> Chromium:
        commands, self._commands = self._pipe()
        self._answers, answers = self._pipe()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        flags = [*_FLAGS, *sandbox, f"--user-data-dir={self._profile}"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", self._program, *flags],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Network.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._commands)
        try:
            # It ends with its pipe.
            self._process.wait(ANSWERS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)

    def open(self, url: str) -> None:
        """Returns when the page and what belongs to it are loaded."""
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        self.wait("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true in the page."""
        self.evaluate(
            f"new Promise(done => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 20); look(); }})"
        )

    def type_text(self, text: str) -> None:
        """As a keyboard does, into what has the focus."""
        for character in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=character, key=character)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=character)

    def screenshot(self) -> bytes:
        """The visible part of the page, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._calls_count += 1
        message: dict[str, object] = {"id": self._calls_count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        until_s = time.monotonic() + ANSWERS_WITHIN_S
        while True:
            received = self._receive(until_s)
            if received.get("method") == "Network.requestWillBeSent":
                self.requested_urls.append(received["params"]["request"]["url"])
            if received.get("id") == self._calls_count:
                assert "error" not in received, f"{method}: {received['error']}"
                result: dict[str, Any] = received["result"]
                return result

    def _receive(self, until_s: float) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\0" not in self._received:
                assert selector.select(until_s - time.monotonic()), "Chromium does not answer"
                chunk = os.read(self._answers, 65536)
                assert chunk, f"Chromium has ended: {self._process.wait()}"
                self._received += chunk
        message, _, self._received = self._received.partition(b"\0")
        received: dict[str, Any] = json.loads(message)
        return received

    @staticmethod
    def _pipe() -> tuple[int, int]:
        low = os.pipe()
        read, write = (fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for descriptor in low)
        for descriptor in low:
            os.close(descriptor)
        return read, write
