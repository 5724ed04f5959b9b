"""A process of the benchmark that is talked to by lines of JSON: it answers on its standard output."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from bench.raw_client.load import LoadFailed
from bench.wire import NO_SETTINGS

END_TIMEOUT_S: Final = 20


class Child:
    """`python -m MODULE WORDS`; what it writes to its standard error goes to `log`.

    `python`: the command of another one, which finds modules of this tree.  `environment`: further variables.
    """

    def __init__(
        self,
        module: str,
        words: Mapping[str, object],
        log: Path,
        python: str = sys.executable,
        environment: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        self._name = f"{module} {words.get('role', '')}".strip()
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, "-m", module, json.dumps(words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **environment},
            )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """The next one.  Raises LoadFailed with the end of the log when none comes."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise LoadFailed(f"{self._name}: no answer in {timeout_s:g} s; {self._story()}") from None
        if answer is None:
            raise LoadFailed(f"{self._name}: it has ended; {self._story()}")
        return answer

    def tell(self, words: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise LoadFailed(f"{self._name}: it has ended; {self._story()}") from None

    def wait(self, timeout_s: float) -> None:
        """Until it has ended.  Raises LoadFailed where it answers, or still runs."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise LoadFailed(f"{self._name}: it has not ended in {timeout_s:g} s; {self._story()}") from None
        if answer is not None:
            raise LoadFailed(f"{self._name}: it has not ended, and answers {answer}")

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """It ends when its parent is gone; after a failure, at once."""
        if error is not None:
            self._process.kill()
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(END_TIMEOUT_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("{"):  # Java, too, may have something to say
                    self._answers.put(json.loads(line))
        self._answers.put(None)

    def _story(self) -> str:
        return f"its log ends:\n{self._log.read_text(errors='replace')[-2000:]}"
