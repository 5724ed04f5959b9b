from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.peers import process_usage
from tests.peers.answering import NotAnswering, wait_until_answering, wait_until_serving
from tests.peers.free_ports import find_free_ports

from bench.peers.peer import HOUSEKEEPING
from bench.wire import NO_SETTINGS

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 30
STOP_TIMEOUT_S: Final = 30


class OttlaPeer:
    """`ottla serve` of this tree in a process of its own, with one flush policy."""

    def __init__(
        self,
        policy: str,
        port: int,
        home: Path,
        settings: Mapping[str, str] = NO_SETTINGS,
        also_listen: Sequence[str] = (),
    ) -> None:
        """`also_listen`: further addresses, as `SSL://127.0.0.1:9093`."""
        self.name = f"ottla-{policy}"
        self.port = port
        self.data_dir = home / "data"
        self._log_path = home / "server.log"
        self._command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(self.data_dir)]
        for address in (f"{HOST}:{port}", *also_listen):
            self._command += ["--listen", address]
        for name, value in ({"log.flush.policy": policy} | HOUSEKEEPING | dict(settings)).items():
            self._command += ["--set", f"{name}={value}"]
        self.start()

    def start(self) -> None:
        """Once more, too, after `stop()`: with the data that are there."""
        with self._log_path.open("ab") as log:
            started = time.monotonic()
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.startup_s = wait_until_answering(HOST, self.port, self.process, START_TIMEOUT_S) - started
            wait_until_serving(HOST, self.port, self.process, START_TIMEOUT_S)
        except NotAnswering as problem:
            self.stop()
            story = self._log_path.read_text(errors="replace")[-2000:]
            raise NotAnswering(f"{' '.join(self._command[1:])}: {problem}; its log ends:\n{story}") from None

    def cpu_seconds(self) -> float:
        return process_usage.cpu_seconds(self.process.pid)

    def rss_bytes(self) -> int:
        return process_usage.rss_bytes(self.process.pid)

    def rss_peak_bytes(self) -> int:
        return process_usage.rss_peak_bytes(self.process.pid)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when draining takes too long."""
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def start_ottla(
    policy: str, work_dir: Path, settings: Mapping[str, str] = NO_SETTINGS, also_listen: Sequence[str] = ()
) -> Iterator[OttlaPeer]:
    """A fresh broker in a directory of its own below `work_dir`; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"ottla-{policy}-", dir=work_dir, ignore_cleanup_errors=True) as home:
        peer = OttlaPeer(policy, find_free_ports(1, HOST)[0], Path(home), settings, also_listen)
        try:
            yield peer
        finally:
            peer.stop()
