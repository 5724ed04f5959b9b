"""A real broker for tests and demonstrations: a process of its own, on a free port of this machine.

    with RunningBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

It runs `ottla serve`, so tests see the real broker.  `kill` and `start` show recovery after a crash, `pause` and
`resume` a process that was frozen for a while.  With `zookeeper` and `node_id` it is one of a cluster's
(ottla/testing/cluster.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, Self

from ottla.model.errors import OttlaError
from ottla.model.setting_sources import is_sensitive, variable_of
from ottla.testing.running import ProcessLog, Running, pause_process

READY_WITHIN_S: Final = 30.0
STOPPED_WITHIN_S: Final = 30.0
LOG_LINES_KEPT: Final = 1_000
LOG_LINES_SHOWN: Final = 20
# The last lines of a process that gives up.
ERROR_MARK: Final = "error: "
HINT_MARK: Final = "hint: "
# `log.dir.reserve.bytes`.
RESERVE_BYTES: Final = 256 * 1024


class BrokerDidNotStart(OttlaError):
    """The broker ended, or was silent for too long, before it was ready; a note has its last log lines."""

    hint = "the data directory and the port are the usual reasons"

    def __init__(self, broker: str, lines: Sequence[str]) -> None:
        reason = _last_after(ERROR_MARK, lines) or (lines[-1] if lines else "it said nothing")
        super().__init__(f"{broker} did not start: {reason}", hint=_last_after(HINT_MARK, lines))
        self.add_note("\n".join(lines[-LOG_LINES_SHOWN:]))


def _last_after(mark: str, lines: Sequence[str]) -> str | None:
    return next((line.removeprefix(mark) for line in reversed(lines) if line.startswith(mark)), None)


class RunningBroker(Running):
    """A broker process.  Without `data_dir` it gets a temporary one, which is removed with it.

    `command` precedes `serve`: tests of the tests use it to start a broker with a planted fault.  With `own_group` a
    terminal's Ctrl-C does not reach it, so its caller can stop the clients first.  With `serves_metrics` it has an
    `admin_url`.  `zookeeper` is the connect string of its cluster.  Its log is appended to `log_path`, too.
    `insecure_listen`: `listen` is not loopback, as in a network namespace.  `also_listen`: further addresses, as
    `SASL_SSL://127.0.0.1:0`; `addresses` has those of all listeners by name.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, str] | None = None,
        command: Sequence[str] = (sys.executable, "-m", "ottla"),
        own_group: bool = False,
        serves_metrics: bool = False,
        admin_listen: str = "127.0.0.1:0",
        zookeeper: str | None = None,
        node_id: int | None = None,
        rack: str | None = None,
        log_path: Path | None = None,
        insecure_listen: bool = False,
        also_listen: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, "ottla-")
        self._command = tuple(command)
        self._insecure_listen = insecure_listen
        self._process_group = 0 if own_group else None
        self._listens = (listen, *also_listen)
        # `host:port` by the listener's name, in the order of `listens`; kept for later starts.
        self.addresses: dict[str, str] = {}
        # A directory of a test is small, and hundreds of them may be kept.
        self._settings = {"log.dir.reserve.bytes": str(RESERVE_BYTES), **(settings or {})}
        self._zookeeper = zookeeper
        if node_id is not None:
            self._settings["node.id"] = str(node_id)
        if rack is not None:
            self._settings["broker.rack"] = rack
        self.node_id = node_id
        self._log_path = log_path
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._is_ready = threading.Event()
        self._has_registry = threading.Event()
        self._lines: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self.log_lines_count = 0
        self._serves_metrics = serves_metrics
        self._admin_listen = admin_listen
        self.host = ""
        self.port = 0
        # `http://host:port`, once it runs; the port changes with each start.
        self.admin_url = ""
        self._registry_url = ""

    @property
    def bootstrap(self) -> str:
        """`host:port`, for `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def schema_registry_url(self) -> str:
        """`http://host:port` of the schema registry beside it (`schema.registry.listeners`): waits until it serves.

        Raises `BrokerDidNotStart`.
        """
        if not self._has_registry.wait(READY_WITHIN_S):
            raise BrokerDidNotStart("the broker's schema registry", self.log_lines)
        return self._registry_url

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ended_how(self) -> str:
        """How the process that was started last has ended, for people: `was killed by SIGKILL`."""
        assert self._process is not None, "it was ended by a call"
        status = self._process.wait()
        return f"ended with status {status}" if status >= 0 else f"was killed by {signal.Signals(-status).name}"

    @property
    def log_lines(self) -> list[str]:
        """The last lines of the broker's log, over all its starts."""
        return list(self._lines)

    def log_lines_after(self, count: int) -> list[str]:
        """Those that came after the first `count` (an earlier `log_lines_count`), of the last lines."""
        lines = self.log_lines
        return lines[max(len(lines) - (self.log_lines_count - count), 0) :]

    def start(self) -> Self:
        """Start the process and wait until it is ready; after a stop or kill on the same port again.

        Raises `BrokerDidNotStart`.
        """
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start the process without waiting: several start at the same time."""
        assert not self.is_running, "the broker is running already"
        self._is_ready.clear()
        self._has_registry.clear()
        self._process = self._spawn(self.command_line)
        self._reader = threading.Thread(target=self._read_log, args=(self._process,), daemon=True)
        self._reader.start()

    def _spawn(self, command: Sequence[str], pass_fds: Sequence[int] = ()) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            process_group=self._process_group,
            pass_fds=pass_fds,
            env={**os.environ, **self._secret_variables},
        )

    @property
    def _secret_variables(self) -> Mapping[str, str]:
        """Settings that are not accepted as arguments."""
        return {variable_of(key): value for key, value in self._settings.items() if is_sensitive(key)}

    def wait_until_ready(self, within_s: float = READY_WITHIN_S, check: Callable[[], None] = lambda: None) -> None:
        """Wait until the launched process serves.  Raises `BrokerDidNotStart`, and then it is not running.

        `check` is called while it waits, and may raise.
        """
        assert self._process is not None, "the broker is not running"
        deadline_s = time.monotonic() + within_s
        while not self._is_ready.wait(0.02):
            check()
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                name = "the broker" if self.node_id is None else f"broker {self.node_id}"
                raise BrokerDidNotStart(name, list(self._lines))

    @property
    def command_line(self) -> list[str]:
        """What `launch` runs: on the port that it had, once it ran."""
        command = [*self._command, "serve", "--data-dir", str(self.data_dir)]
        for address in self._listens_on:
            command += ["--listen", address]
        if self._zookeeper is not None:
            command += ["--zookeeper", self._zookeeper]
        for key, value in self._settings.items():
            if not is_sensitive(key):
                command += ["--set", f"{key}={value}"]
        if self._insecure_listen:
            command += ["--insecure-listen"]
        if self._serves_metrics:
            command += ["--admin-listen", self._admin_listen]
        return command

    @property
    def _listens_on(self) -> Sequence[str]:
        if not self.addresses:
            return self._listens
        protocols = [text[: text.find("://") + 3] if "://" in text else "" for text in self._listens]
        return [protocol + found for protocol, found in zip(protocols, self.addresses.values(), strict=True)]

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing is answered."""
        assert self._process is not None, "the broker is not running"
        pause_process(self._process)

    def resume(self) -> None:
        assert self._process is not None, "the broker is not running"
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM, also when it is paused, without waiting."""
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Stop it as an operator would (SIGTERM); returns its exit code."""
        if self._process is None:
            return 0
        self.terminate()
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._reap()

    def kill(self) -> None:
        """End it without warning (SIGKILL), as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _end(self) -> None:
        self.stop()

    def _reap(self) -> int:
        assert self._process is not None
        code = self._process.wait()
        if self._reader is not None:
            self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._process = None
        return code

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with ExitStack() as stack:
            log = None if self._log_path is None else stack.enter_context(closing(ProcessLog(self._log_path)))
            for line in process.stderr:
                if log is not None:
                    log.add(line)
                self._lines.append(line.rstrip("\n"))
                self.log_lines_count += 1
                self._note_event(line.split())

    def _note_event(self, words: Sequence[str]) -> None:
        event = words[2] if len(words) > 2 else ""
        facts = dict(word.split("=", 1) for word in words[3:] if "=" in word)
        if event == "admin.listening":
            self.admin_url = f"{facts['scheme']}://{facts['host']}:{facts['port']}"
        elif event == "registry.ready":
            self._registry_url = f"{facts['scheme']}://{facts['host']}:{facts['port']}"
            self._has_registry.set()
        elif event == "listener.opened":
            self.addresses[str(facts["name"])] = f"{facts['host']}:{facts['port']}"
        elif event == "broker.ready":
            self.host, self.port = facts["host"], int(facts["port"])
            self._is_ready.set()
