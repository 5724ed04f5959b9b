"""`ottla consume`: a topic's records to standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from ottla.cli.client_flags import (
    assignments,
    bootstrap_flag,
    check_names,
    json_flag,
    one_name,
    open_cluster,
    property_flag,
    truth,
)
from ottla.cli.output import say
from ottla.cli.records.record_text import LineFormat, format_json, format_line
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.client.fetching.fetch_requests import FetchedPartition
    from ottla.client.fetching.fetcher import Fetcher
    from ottla.client.fetching.offsets import IsolationLevel
    from ottla.client.wire.cluster import Cluster
    from ottla.records.header import BatchHeader
    from ottla.records.record import Record

_POLL_MS: Final = 1_000
_PARTS: Final = {
    "print.timestamp": "timestamp",
    "print.partition": "partition",
    "print.offset": "offset",
    "print.headers": "headers",
    "print.key": "key",
    "print.value": "value",
}
_DAMAGED: Final = (
    "`ottla log verify --deep DIR` finds damage in the broker's data directory, `ottla log repair DIR` makes the rest "
    "readable"
)
_AFTER_DAMAGE: Final = f"start after the damage with --offset; {_DAMAGED}"
_UNREADABLE: Final = f"--skip-unreadable leaves such batches out and says where; {_DAMAGED}"
_PROPERTIES: Final = (*_PARTS, "key.separator", "line.separator", "headers.separator", "null.literal")


@click.command(name="consume")
@click.argument("topic_argument", metavar="TOPIC", required=False)
@click.option("--topic", "topic_option", metavar="TOPIC", help="The same as TOPIC.")
@bootstrap_flag
@click.option("--from-beginning", is_flag=True, help="Start with the oldest record.  [default: with the next new one]")
@click.option(
    "--offset", "offset", metavar="OFFSET|earliest|latest", help="Where to start, in every partition that is read."
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Read only this one; may be repeated.",
)
@click.option("--max-messages", type=click.IntRange(min=0), metavar="N", help="Stop after this many records.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=0), metavar="MS", help="Stop when no record has arrived for this time."
)
@click.option("--until-end", "-e", is_flag=True, help="Stop at the topic's end as of the start.")
@click.option(
    "--skip-unreadable", is_flag=True, help="Leave out batches that cannot be read; a note says which.  [default: stop]"
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed: records of transactions when they are committed, and none of aborted ones.",
)
@json_flag("One JSON object for each record.")
@click.option("--show", metavar="PART,...", help="Parts of a line: timestamp, partition, offset, headers, key, value.")
@click.option("--key-separator", metavar="TEXT", help="Show the key, with this separator between the parts of a line.")
@property_flag
def command(
    topic_argument: str | None,
    topic_option: str | None,
    bootstrap: str,
    from_beginning: bool,
    offset: str | None,
    partitions: tuple[int, ...],
    max_messages: int | None,
    timeout_ms: int | None,
    until_end: bool,
    skip_unreadable: bool,
    isolation_level: str,
    as_json: bool,
    show: str | None,
    key_separator: str | None,
    properties: tuple[str, ...],
) -> None:
    """Write a topic's records to standard output, then new ones until Ctrl-C.

    \b
    ottla consume clicks --from-beginning --show key,value --key-separator :
    ottla consume clicks --from-beginning --until-end --json | jq .value
    """
    topic = one_name("topic", topic_argument, topic_option)
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset exclude each other.")
    begin = _begin("earliest" if from_beginning else offset or "latest")
    writer = _Writer(sys.stdout.buffer, None if as_json else _line_format(show, key_separator, properties))
    writer.limit = max_messages
    writer.skips_unreadable = skip_unreadable
    try:
        with open_cluster(bootstrap, "ottla-consume") as cluster:
            chosen = _choose_partitions(cluster, topic, partitions)
            follows = None if partitions or until_end else topic
            _copy(cluster, chosen, begin, until_end, timeout_ms, writer, isolation_level, follows)
    except KeyboardInterrupt:
        pass  # the usual way to stop it
    writer.out.flush()


class _Writer:
    """Records of fetched batches to a stream, up to a limit."""

    def __init__(self, out: BinaryIO, how: LineFormat | None) -> None:
        self.out = out
        self.limit: int | None = None
        self.skips_unreadable = False
        self._how = how
        # Where the batches that were left out say that they end: damage may be in that, too.
        self._claims: dict[TopicPartition, int] = {}

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.limit <= 0

    def write(self, fetched: FetchedPartition, end: int | None) -> None:
        """The records from the requested offset up to `end`."""
        from ottla.client.fetching.fetch_requests import committed_batches
        from ottla.records.header import read_header

        for batch in committed_batches(fetched):
            header = read_header(batch)
            self._check_claim(fetched.partition, header)
            if header.is_control:
                continue
            for record in self._records(fetched, batch, header):
                if record.offset < fetched.fetch_offset or (end is not None and record.offset >= end):
                    continue
                if self.is_full:
                    return
                if self._how is None:
                    self.out.write(format_json(fetched.partition, record))
                else:
                    where = fetched.partition.partition
                    self.out.write(format_line(where, record, header.is_log_append_time, self._how))
                if self.limit is not None:
                    self.limit -= 1

    def _records(self, fetched: FetchedPartition, batch: memoryview, header: BatchHeader) -> list[Record]:
        """Those of a batch; none of one that is left out."""
        from ottla.model.errors import WireError
        from ottla.records.errors import CorruptBatch
        from ottla.records.record import decode_batch

        try:
            return decode_batch(batch)
        except WireError as error:  # damaged, or more than may be decompressed
            place = f"{fetched.partition}, {_offsets(header)}"
            if not self.skips_unreadable:
                raise CorruptBatch(f"{place}: the batch cannot be read: {error}", hint=_UNREADABLE) from error
            if header.next_offset > fetched.high_watermark:
                log_end = f"the log ends at offset {fetched.high_watermark}"
                raise CorruptBatch(f"{place}: the batch cannot be read, and {log_end}", hint=_AFTER_DAMAGE) from error
            say(f"note: {place}: the batch cannot be read and is left out: {error}", err=True)
            self._claims[fetched.partition] = header.next_offset
            return []

    def _check_claim(self, partition: TopicPartition, header: BatchHeader) -> None:
        from ottla.records.errors import CorruptBatch

        claim, found = self._claims.pop(partition, 0), header.base_offset
        if found < claim:
            wrong = f"the batch that was left out does not end at offset {claim - 1}: {found} is in the next one"
            raise CorruptBatch(f"{partition}: {wrong}", hint=_AFTER_DAMAGE)


def _offsets(header: BatchHeader) -> str:
    first, last = header.base_offset, header.next_offset - 1
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def _copy(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    begin: int,
    until_end: bool,
    timeout_ms: int | None,
    writer: _Writer,
    isolation_level: str,
    follows: str | None = None,
) -> None:
    """Write the records; `follows` names the topic whose partitions are all read, including those added later."""
    from ottla.client.fetching.fetcher import Fetcher
    from ottla.client.fetching.offsets import LATEST, isolation_level_of, list_offsets
    from ottla.client.wire.errors import ClientError

    isolation = isolation_level_of(isolation_level)
    # Without an end it waits as long as it takes: for records, and for partitions that cannot be read now.
    waits = not until_end and timeout_ms is None
    wanted = list(partitions)
    positions = _positions(cluster, wanted, begin, waits, isolation)
    ends: dict[TopicPartition, int] = {}
    if until_end:
        answers = list_offsets(cluster, dict.fromkeys(positions, LATEST), isolation=isolation)
        ends = {each: answer.offset for each, answer in answers.items()}
        _check_begin(begin, ends)
    with Fetcher(cluster, positions, ends, isolation=isolation) as fetcher:
        quiet_until = cluster.retrying.deadline(timeout_ms or 0)
        while not writer.is_full:
            missing = [each for each in wanted if each not in positions]
            if fetcher.is_finished and not missing:
                return
            try:
                for partition, offset in _positions(cluster, missing, begin, waits, isolation).items():
                    positions[partition] = offset
                    fetcher.seek(partition, offset)
                if follows is not None:
                    _seek_added(cluster, fetcher, follows, wanted, positions)
            except ClientError as error:
                if not (waits and error.is_retriable):
                    raise
            wait_ms = _POLL_MS if timeout_ms is None else min(_POLL_MS, quiet_until.remaining_ms)
            fetched = _poll(cluster, fetcher, begin, wait_ms, waits, isolation)
            for each in fetched:
                writer.write(each, ends.get(each.partition))
            writer.out.flush()
            if fetched:
                quiet_until = cluster.retrying.deadline(timeout_ms or 0)
            elif timeout_ms is not None and quiet_until.has_passed:
                return


def _seek_added(
    cluster: Cluster, fetcher: Fetcher, topic: str, wanted: list[TopicPartition], positions: dict[TopicPartition, int]
) -> None:
    """Start to read partitions that were added to the topic, from their beginning, when the metadata shows them."""
    for number in cluster.partitions(topic):
        partition = TopicPartition(topic, number)
        if partition not in wanted:
            wanted.append(partition)
            positions[partition] = 0
            fetcher.seek(partition, 0)


def _poll(
    cluster: Cluster, fetcher: Fetcher, begin: int, wait_ms: float, waits: bool, isolation: IsolationLevel
) -> list[FetchedPartition]:
    """Where retention has overtaken the reader, continue with the oldest record."""
    from ottla.client.fetching.fetch_machine import FetchFailure
    from ottla.client.fetching.offsets import EARLIEST, LATEST, list_offsets
    from ottla.client.wire.errors import ClientError, OffsetOutOfRange
    from ottla.records.errors import CorruptBatch

    fetched: list[FetchedPartition] = []
    for found in fetcher.poll_each(wait_ms):
        if not isinstance(found, FetchFailure):
            fetched.append(found)
            continue
        error, offset = found.error, found.offset
        if isinstance(error, CorruptBatch):
            raise CorruptBatch(str(error), hint=_DAMAGED) from error
        if isinstance(error, OffsetOutOfRange) and error.offset != begin:
            where = LATEST if begin == LATEST else EARLIEST
            answers = list_offsets(cluster, {found.partition: where}, isolation=isolation)
            offset = answers[found.partition].offset
            say(f"note: {error}; continuing at offset {offset}", err=True)
        elif not (waits and isinstance(error, ClientError) and error.is_retriable):
            raise error
        fetcher.seek(found.partition, offset)
    return fetched


def _check_begin(begin: int, ends: Mapping[TopicPartition, int]) -> None:
    """An offset beyond the end of every partition is an error; one beyond that of some is reported."""
    from ottla.client.wire.errors import OffsetOutOfRange

    beyond = {partition: end for partition, end in ends.items() if begin > end}
    for partition, end in beyond.items():
        if len(beyond) == len(ends):
            raise OffsetOutOfRange(partition, begin)
        say(f"note: {partition}: offset {begin} is not in the log, which ends at {end}", err=True)


def _positions(
    cluster: Cluster, partitions: Sequence[TopicPartition], begin: int, waits: bool, isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    """Where to begin; without the partitions that do not say it now, when there is time to request it again."""
    from ottla.client.fetching.offsets import list_offsets, try_list_offsets
    from ottla.client.wire.errors import ClientError

    questions = dict.fromkeys(partitions, begin)
    if begin >= 0 or not partitions:
        return questions
    if not waits:
        answers = list_offsets(cluster, questions, isolation=isolation)
        return {partition: answer.offset for partition, answer in answers.items()}
    found: dict[TopicPartition, int] = {}
    for partition, answer in try_list_offsets(cluster, questions, isolation=isolation).items():
        if not isinstance(answer, ClientError):
            found[partition] = answer.offset
        elif answer.is_retriable:
            cluster.retrying.on_wait(answer)
            cluster.forget([partition.topic])
        else:
            raise answer
    return found


def _choose_partitions(cluster: Cluster, topic: str, wanted: tuple[int, ...]) -> list[TopicPartition]:
    from ottla.client.wire.errors import ClientError

    for partition in wanted:
        try:
            cluster.leader(TopicPartition(topic, partition))
        except ClientError as error:
            if not error.is_retriable:  # such as a partition that the topic does not have
                raise
    return [TopicPartition(topic, partition) for partition in wanted or cluster.partitions(topic)]


def _begin(text: str) -> int:
    """An offset, or ListOffsets' negative number for the name."""
    from ottla.client.fetching.offsets import EARLIEST, LATEST

    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if named is not None:
        return named
    if text.isascii() and text.isdigit() and int(text) < 1 << 63:
        return int(text)
    raise click.UsageError(f"--offset is earliest, latest or a number from 0 on, not {text!r}.")


def _line_format(show: str | None, key_separator: str | None, properties: Iterable[str]) -> LineFormat:
    found = assignments(properties, "--property")
    check_names(found, _PROPERTIES, "--property")
    shown = {part for name, part in _PARTS.items() if truth(name, found.get(name, str(part == "value")))}
    if key_separator is not None:
        shown.add("key")
    if show is not None:
        shown = {part.strip() for part in show.split(",")}
        check_names(dict.fromkeys(shown, ""), _PARTS.values(), "--show")
    default = LineFormat()
    return LineFormat(
        has_key="key" in shown,
        has_headers="headers" in shown,
        has_value="value" in shown,
        has_timestamp="timestamp" in shown,
        has_partition="partition" in shown,
        has_offset="offset" in shown,
        key_separator=(key_separator or found.get("key.separator", "\t")).encode(),
        headers_separator=_bytes(found, "headers.separator", default.headers_separator),
        line_separator=_bytes(found, "line.separator", default.line_separator),
        null_literal=_bytes(found, "null.literal", b"null"),
    )


def _bytes(found: Mapping[str, str], name: str, default: bytes) -> bytes:
    return found[name].encode() if name in found else default
