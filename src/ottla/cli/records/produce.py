"""`ottla produce`: lines of standard input, or of a file, to a topic."""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import click

from ottla.cli.client_flags import (
    assignments,
    bootstrap_flag,
    check_names,
    json_flag,
    one_name,
    open_cluster,
    property_flag,
    tell_of_waiting,
    truth,
)
from ottla.cli.output import say
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.records.record_text import (
    TIMESTAMP_MS_MAX,
    TIMESTAMP_MS_MIN,
    BadLine,
    InputRecord,
    LineFormat,
    parse_json,
    parse_line,
)
from ottla.model.counted import counted
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.limits import KIB, MIB
from ottla.runtime.clock import SystemClock

if TYPE_CHECKING:
    from ottla.client.producing.produce_requests import BatchResult
    from ottla.client.producing.record_producer import RecordProducer
    from ottla.client.wire.waiting import Waiting


_READ_BYTES: Final = 256 * KIB
LINE_BYTES_MAX: Final = 64 * MIB
BUSY_PAUSE_S: Final = 0.1


def input_lines(
    source: BinaryIO, linger_ms: int, is_busy: Callable[[], bool] = lambda: False
) -> Iterator[bytes | None]:
    """Each line without its end; None when no more input has arrived for `linger_ms`: time to send.

    While `is_busy` the pauses are reported repeatedly, for a caller that has other work.
    """
    # Pieces of a line whose end has not come: joined once, so that a long line costs what it is long.
    pieces: list[bytes] = []
    rest_bytes = 0
    for chunk in _chunks(source, linger_ms, is_busy):
        if chunk is None:
            yield None
            continue
        first, *lines = chunk.split(b"\n")
        pieces.append(first)
        rest_bytes += len(first)
        if lines:
            yield b"".join(pieces).removesuffix(b"\r")
            *whole, rest = lines
            yield from (line.removesuffix(b"\r") for line in whole)
            pieces, rest_bytes = [rest], len(rest)
        if rest_bytes > LINE_BYTES_MAX:
            raise OttlaError(f"a line is longer than {LINE_BYTES_MAX} bytes", hint="is the input text with line ends?")
    if rest_bytes:
        yield b"".join(pieces).removesuffix(b"\r")


def _chunks(source: BinaryIO, linger_ms: int, is_busy: Callable[[], bool]) -> Iterator[bytes | None]:
    try:
        descriptor = source.fileno()
    except (OSError, io.UnsupportedOperation):  # not a file: input inside a test
        yield source.read()
        return
    is_quiet = False
    while True:
        # Windows can select sockets only: there every read counts as a pause.
        wait_s = BUSY_PAUSE_S if is_quiet and is_busy() else None if is_quiet else linger_ms / 1000
        ready = sys.platform == "win32" or select.select([descriptor], [], [], wait_s)[0]
        if not ready:
            is_quiet = True
            yield None
            continue
        is_quiet = False
        chunk = _read(source)
        if not chunk:
            return
        yield chunk


def _read(source: BinaryIO) -> bytes:
    raw = getattr(source, "raw", None)
    chunk = raw.read(_READ_BYTES) if raw is not None else source.read(_READ_BYTES)
    assert isinstance(chunk, bytes | None)
    return chunk or b""


# Between two looks at what was acknowledged.
_STEP_MS: Final = 250
# What refuses a record that is larger.
_TOO_LARGE: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "segment.bytes",
}
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_PROPERTIES: Final = (
    "parse.key",
    "key.separator",
    "parse.headers",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "null.marker",
)


@click.command(name="produce")
@click.argument("topic_argument", metavar="TOPIC", required=False)
@click.option("--topic", "topic_option", metavar="TOPIC", help="The same as TOPIC.")
@bootstrap_flag
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read it, and show the progress.  [default: standard input]",
)
@click.option("--key-separator", metavar="TEXT", help="Lines are KEY<separator>VALUE.")
@click.option("--key", metavar="TEXT", help="The key of every record.")
@click.option("--header", "headers", multiple=True, metavar="KEY=VALUE", help="A header of every record.")
@click.option(
    "--timestamp",
    "timestamp_ms",
    type=click.IntRange(TIMESTAMP_MS_MIN, TIMESTAMP_MS_MAX),
    metavar="MS",
    help="The time of every record.  [default: now]",
)
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="Where to write.  [default: by key, else in turn]"
)
@json_flag("Each line is an object in the form of `ottla consume --json`.")
@click.option("--acks", type=click.Choice(list(_ACKS)), default="all", show_default=True)
@click.option("--compression-codec", "--compression-type", "codec", type=click.Choice(_CODECS), default="none")
@click.option("--batch-size", type=click.IntRange(1), default=65536, show_default=True, metavar="BYTES")
@click.option(
    "--linger-ms",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="MS",
    help="Send after a pause of this length.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Write the whole input in one transaction of this id: readers of committed records see all of it or nothing.",
)
@click.option(
    "--transaction-timeout-ms",
    type=click.IntRange(1),
    default=60_000,
    show_default=True,
    metavar="MS",
    help="An input that takes longer is aborted.",
)
@property_flag
@click.option("--verbose", "-v", is_flag=True, help="Print where each batch was stored, on standard error.")
def command(
    topic_argument: str | None,
    topic_option: str | None,
    bootstrap: str,
    path: Path | None,
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    timestamp_ms: int | None,
    partition: int | None,
    as_json: bool,
    acks: str,
    codec: str,
    batch_size: int,
    linger_ms: int,
    transactional_id: str | None,
    transaction_timeout_ms: int,
    properties: tuple[str, ...],
    verbose: bool,
) -> None:
    """Write lines of standard input, or of a file, to a topic, one record each.

    \b
    echo 'user-7:clicked' | ottla produce clicks --key-separator :
    ottla consume clicks --json | ottla produce copy --json

    It exits when the input ends and everything is stored.  With --transactional-id the end of the input commits;
    an error, Ctrl-C or a wrong line aborts, and a killed run is aborted by the next one with the same id, or at its
    time-out.
    """
    topic = one_name("topic", topic_argument, topic_option)
    how = _line_format(key_separator, properties)
    fixed = InputRecord(
        None if key is None else key.encode(),
        None,
        tuple((name, value.encode()) for name, value in assignments(headers, "--header").items()),
        timestamp_ms,
        partition,
    )
    if as_json and how != LineFormat():
        raise click.UsageError("--json has its own fields for key and headers.")
    if transactional_id == "":
        # Written without a transaction the input would be visible before its end, and after an error.
        raise click.UsageError("--transactional-id is empty: name an id (an unset shell variable is an empty text).")
    if transactional_id is not None and _ACKS[acks] != _ACKS["all"]:
        raise click.UsageError("--transactional-id needs --acks all.")

    from ottla.client.producing.record_producer import Batching, RecordProducer
    from ottla.client.producing.settings import ProducerOptions
    from ottla.records.compression import Codec

    batching = Batching(batch_bytes=batch_size, codec=Codec.from_name(codec))
    waiting = tell_of_waiting()
    options = ProducerOptions(
        acks=_ACKS[acks], transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
    )
    with (
        _opened(path) as source,
        open_cluster(bootstrap, "ottla-produce", waiting) as cluster,
        RecordProducer(cluster, options, batching) as producer,
        _whole_input(producer, is_transaction=options.transactional_id is not None),
        _FileProgress(path) as progress,
    ):
        cluster.topic(topic, allow_auto_topic_creation=True)
        try:
            for number, line in _numbered(input_lines(source, linger_ms, lambda: producer.pending_count > 0)):
                if line is None:
                    producer.push()
                else:
                    _add(producer, topic, _record(line, how, as_json, number), fixed)
                    progress.add(line)
                _check(producer.poll(), verbose)
                while not producer.has_room:
                    _look(producer.poll(_STEP_MS), verbose, waiting)
        except BadLine:
            if options.transactional_id is None:
                _finish(producer, verbose, waiting)
            raise
        _finish(producer, verbose, waiting)


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdin.buffer
        return
    with path.open("rb", buffering=0) as file:
        yield cast(BinaryIO, file)


class _FileProgress:
    """How much of the file was read; of standard input nothing is shown."""

    def __init__(self, path: Path | None) -> None:
        self._progress = None if path is None else JobProgress()
        self._size_bytes = 0 if path is None else path.stat().st_size
        self._records_count = 0
        self._read_bytes = 0

    def add(self, line: bytes) -> None:
        self._records_count += 1
        self._read_bytes += len(line) + 1
        if self._progress is not None:
            self._progress.show(file_progress(self._records_count, self._read_bytes, self._size_bytes))

    def __enter__(self) -> _FileProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.close()


def file_progress(records_count: int, read_bytes: int, size_bytes: int) -> str:
    """A pipe, or a file that grows, has no size to compare with."""
    share = f", {100 * read_bytes / size_bytes:.0f} %" if read_bytes <= size_bytes else ""
    return f"{counted(records_count, 'record', separator=',')}, {read_bytes / MIB:,.1f} MiB{share}"


@contextmanager
def _whole_input(producer: RecordProducer, *, is_transaction: bool) -> Iterator[None]:
    """As one transaction, which the end of the block commits, and any error aborts."""
    if not is_transaction:
        yield
        return
    from ottla.client.producing.errors import TransactionAbortable

    try:
        producer.transactions.take_over()
        producer.transactions.begin()
        yield
        producer.transactions.commit()
    except TransactionAbortable as error:
        raise OttlaError(f"nothing of the input is committed: {error.reason}", hint=error.reason.hint) from error
    except BadLine as error:
        raise BadLine(str(error), hint="nothing of the input is committed: its transaction is aborted") from None


def _numbered(lines: Iterable[bytes | None]) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers; a pause has the number of the line before it."""
    number = 0
    for line in lines:
        number += line is not None
        yield number, line


def _record(line: bytes, how: LineFormat, as_json: bool, number: int) -> InputRecord:
    try:
        return parse_json(line) if as_json else parse_line(line, how)
    except BadLine as error:
        raise BadLine(f"input line {number}: {error}", hint="the lines before it were sent") from None


def _add(producer: RecordProducer, topic: str, record: InputRecord, fixed: InputRecord) -> None:
    """The line's own fields, else those of the flags."""
    timestamp_ms = record.timestamp_ms if record.timestamp_ms is not None else fixed.timestamp_ms
    producer.add(
        topic,
        record.key if record.key is not None else fixed.key,
        record.value,
        headers=(*fixed.headers, *record.headers),
        timestamp_ms=timestamp_ms if timestamp_ms is not None else SystemClock().now_ms(),
        partition=fixed.partition if fixed.partition is not None else record.partition,
    )


def _finish(producer: RecordProducer, verbose: bool, waiting: Waiting) -> None:
    """Wait for the result of every batch."""
    producer.push()
    while producer.pending_count:
        _look(producer.poll(_STEP_MS), verbose, waiting)
    _check(producer.poll(), verbose)


def _look(results: Sequence[BatchResult], verbose: bool, waiting: Waiting) -> None:
    if not results:
        waiting.on_silence()
    _check(results, verbose)


def _check(results: Iterable[BatchResult], verbose: bool) -> None:
    """Stop at the first batch that was not stored."""
    from ottla.client.producing.produce_requests import DeliveryStatus

    for result in results:
        if result.status in (DeliveryStatus.REFUSED, DeliveryStatus.UNKNOWN):
            fate = "not stored" if result.status is DeliveryStatus.REFUSED else "may be stored or not"
            records = counted(result.records_count, "record")
            raise OttlaError(f"{records} {fate}: {result.error}", hint=_hint(result))
        if verbose:
            first = result.base_offset
            where = f" offsets {first} to {first + result.records_count - 1}" if first >= 0 else ""
            say(
                f"{result.partition}: {result.status.value} {counted(result.records_count, 'record')}{where}",
                err=True,
            )


def _hint(result: BatchResult) -> str | None:
    from ottla.client.wire.errors import BrokerRefused

    if isinstance(result.error, BrokerRefused) and result.error.code in _TOO_LARGE and result.records_count == 1:
        size = counted(result.size_bytes, "byte")
        return f"with its batch it takes {size}: raise the topic's {_TOO_LARGE[result.error.code]}"
    return None if result.error is None else result.error.hint


def _line_format(key_separator: str | None, properties: Iterable[str]) -> LineFormat:
    found = assignments(properties, "--property")
    check_names(found, _PROPERTIES, "--property")
    if key_separator is not None:
        found |= {"parse.key": "true", "key.separator": key_separator}
    default = LineFormat()
    how = LineFormat(
        has_key=truth("parse.key", found.get("parse.key", "false")),
        has_headers=truth("parse.headers", found.get("parse.headers", "false")),
        key_separator=_bytes(found, "key.separator", default.key_separator),
        headers_delimiter=_bytes(found, "headers.delimiter", default.headers_delimiter),
        headers_separator=_bytes(found, "headers.separator", default.headers_separator),
        header_key_separator=_bytes(found, "headers.key.separator", default.header_key_separator),
        null_literal=found["null.marker"].encode() if "null.marker" in found else None,
    )
    if not all((how.key_separator, how.headers_delimiter, how.headers_separator, how.header_key_separator)):
        raise click.UsageError("A separator cannot be empty.")
    return how


def _bytes(found: Mapping[str, str], name: str, default: bytes) -> bytes:
    return found[name].encode() if name in found else default
