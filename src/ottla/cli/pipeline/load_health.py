"""What a service of loads reports of itself: its metrics and whether it is healthy, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ottla.model.errors import ConfigError, OttlaError
from ottla.observe.metrics import CONTENT_TYPE, CollectorRegistry, Family, counter, gauge
from ottla.runtime.host_names import family_of
from ottla.security.http_access import HttpHead, HttpHosts, HttpRefused

if TYPE_CHECKING:
    from ottla.spark.lake.following import LoadTrack

# Of one client: it sends a head of a request at once.
_RECEIVE_WITHIN_S: Final = 5.0
_TABLE: Final = ("table",)


def load_metrics(tracks: Mapping[str, LoadTrack], now_ms: int) -> Iterator[Family]:
    """Of each table by its name in the file of settings."""

    def each(value: Callable[[LoadTrack], float | None]) -> dict[tuple[str], float]:
        found = ((name, value(track)) for name, track in tracks.items())
        return {(name,): number for name, number in found if number is not None}

    yield gauge(
        "ottla_load_lag_records",
        "Records of the logs that the table lacked when it was last compared with them.",
        each(lambda track: track.lag_records),
        _TABLE,
    )
    yield gauge(
        "ottla_load_lag_seconds",
        "Every record that was written longer ago is in the table, or a dead letter.",
        each(lambda track: None if (lag_ms := track.lag_ms(now_ms)) is None else lag_ms / 1_000),
        _TABLE,
    )
    yield counter("ottla_load_rows_total", "Rows committed.", each(lambda track: track.rows_count), _TABLE)
    yield counter("ottla_load_files_total", "Files committed.", each(lambda track: track.files_count), _TABLE)
    yield counter("ottla_load_commits_total", "Commits to the table.", each(lambda track: track.commits_count), _TABLE)
    yield counter("ottla_load_failures_total", "Loads that failed.", each(lambda track: track.failures_count), _TABLE)
    yield counter(
        "ottla_load_refused_records_total",
        "Records that are not in the table: dead letters, and the first that ended the loads.",
        {(name, reason): count for name, track in tracks.items() for reason, count in track.refused.items()},
        ("table", "reason"),
    )
    yield gauge(
        "ottla_load_stopped",
        "1: loads of the table have ended for good, since to repeat them would not help.",
        each(lambda track: int(track.stopped_by is not None)),
        _TABLE,
    )


def unhealthy(tracks: Mapping[str, LoadTrack], now_ms: int, failing_max_ms: int) -> list[str]:
    """Why the service is not healthy; empty when it is.

    A table whose loads fail is not healthy when they have failed for longer than `failing_max_ms`.
    """
    problems = []
    for name, track in tracks.items():
        if track.stopped_by is not None:
            problems.append(f"{name}: stopped: {_kind_of(track.stopped_by)}")
        elif track.failing_since_ms is not None and now_ms - track.failing_since_ms > failing_max_ms:
            failing_s = (now_ms - track.failing_since_ms) // 1_000
            why = "" if track.last_error is None else f": {_kind_of(track.last_error)}"
            problems.append(f"{name}: its loads have failed for {failing_s} s{why}")
    return problems


def _kind_of(error: OttlaError) -> str:
    """Without its text, in which a function may have put a record's content: that is in the service's log."""
    from ottla.spark.errors import RecordsRefused

    kind = type(error).__name__
    if not isinstance(error, RecordsRefused):
        return kind
    if error.place is None:
        return f"{kind} ({error.reason})"
    topic, partition, offset = error.place
    return f"{kind} ({error.reason}), at offset {offset} of {topic} partition {partition}"


class LoadHealth:
    """`/healthz` and `/metrics`, from a thread.

    Both show names of tables and kinds of errors, and no content of records; there is no login.

    Raises `ConfigError` where the address cannot be bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], Iterable[Family]],
        problems: Callable[[], Iterable[str]],
    ) -> None:
        registry = CollectorRegistry()
        registry.add(metrics)
        hosts = HttpHosts([host], "--http in place of the address, or let them use the address")

        class Handler(BaseHTTPRequestHandler):
            timeout = _RECEIVE_WITHIN_S

            def do_GET(self) -> None:  # as http.server calls it
                try:
                    hosts.check(_head(self), is_encrypted=False)
                except HttpRefused as refused:
                    self._answer(refused.status, f"{refused}\n")
                    return
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(HTTPStatus.OK, "".join(registry.chunks()), CONTENT_TYPE)
                elif path == "/healthz":
                    found = list(problems())
                    status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
                    self._answer(status, "".join(f"{line}\n" for line in found) or "ok\n")
                else:
                    self._answer(HTTPStatus.NOT_FOUND, "there are /healthz and /metrics\n")

            def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8") -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # as http.server names it
                """A scrape is no event."""

        class Server(ThreadingHTTPServer):
            address_family = family_of(host)

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise ConfigError(f"--http {host}:{port} cannot be used: {error}", hint="choose another port") from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="load-health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _head(handler: BaseHTTPRequestHandler) -> HttpHead:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in handler.headers.items()]
    return HttpHead(handler.command, handler.path, headers)
