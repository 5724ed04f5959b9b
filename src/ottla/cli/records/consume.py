"""`ottla consume`: records of topics to standard output."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.client_flags import (
    all_names,
    assignments,
    bootstrap_flag,
    check_names,
    given_security,
    json_flag,
    open_cluster,
    property_flag,
    truth,
)
from ottla.cli.output import say
from ottla.cli.records.record_filter import record_filter
from ottla.cli.records.record_format import record_format
from ottla.cli.records.record_text import LineFormat, format_json, format_line
from ottla.cli.records.record_writer import DAMAGED, RecordForm, RecordWriter
from ottla.cli.records.start import EARLIEST, Start, start_of
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock

if TYPE_CHECKING:
    from ottla.client.fetching.fetch_requests import FetchedPartition
    from ottla.client.fetching.fetcher import Fetcher
    from ottla.client.fetching.offsets import IsolationLevel
    from ottla.client.groups.subscription import TopicFilter
    from ottla.client.wire.cluster import Cluster
    from ottla.records.record import Record

_POLL_MS: Final = 1_000
# How often a pattern is compared with the topics that there are.
_LOOK_FOR_TOPICS_MS: Final = 5_000
_PARTS: Final = {
    "print.timestamp": "timestamp",
    "print.partition": "partition",
    "print.offset": "offset",
    "print.headers": "headers",
    "print.key": "key",
    "print.value": "value",
}
_TOPIC: Final = "topic"
_PROPERTIES: Final = (*_PARTS, "key.separator", "line.separator", "headers.separator", "null.literal")
_LEVELS: Final = ("read_uncommitted", "read_committed")


class _Topics(NamedTuple):
    """Those that are read: by name, or by a pattern, which later topics join.  Partitions: only these of a topic."""

    names: Sequence[str]
    pattern: str | None
    partitions: Sequence[int]

    def filter(self) -> TopicFilter:
        from ottla.client.groups.subscription import TopicFilter

        return TopicFilter(self.pattern or "|".join(map(re.escape, self.names)))


@click.command(name="consume")
@click.argument("topic_arguments", metavar="[TOPIC...]", nargs=-1)
@click.option("--topic", "topic_options", metavar="TOPIC", multiple=True, help="The same as TOPIC.")
@click.option("--pattern", metavar="REGEX", help="All topics whose whole names match, those that are made later too.")
@bootstrap_flag
@click.option(
    "--group", metavar="GROUP", help="Read as a member of this group, and commit what was written.  [default: no group]"
)
@click.option("--from-beginning", is_flag=True, help="Start with the oldest record.  [default: with the next new one]")
@click.option(
    "--offset",
    metavar="OFFSET|earliest|latest|@TIME",
    help="Where to start, in every partition that is read: -10 is 10 before its end, @-90m is 90 minutes ago, and @ "
    "with a number are ms since 1970.  Of a group: where it has committed nothing, earliest or latest.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Read only this one of a topic; may be repeated.",
)
@click.option("--max-messages", type=click.IntRange(min=0), metavar="N", help="Stop after this many records.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=0), metavar="MS", help="Stop when no record has arrived for this time."
)
@click.option("--until-end", "-e", is_flag=True, help="Stop at the topics' ends as of the start.")
@click.option(
    "--skip-unreadable", is_flag=True, help="Leave out batches that cannot be read; a note says which.  [default: stop]"
)
@click.option(
    "--isolation-level",
    type=click.Choice(_LEVELS),
    default=_LEVELS[0],
    show_default=True,
    help="read_committed: records of transactions when they are committed, and none of aborted ones.",
)
@click.option(
    "--filter",
    "filters",
    metavar="KEY=REGEX",
    multiple=True,
    help="Only records whose key, value or header.NAME matches; of several filters, all.",
)
@json_flag("One JSON object for each record.")
@click.option(
    "--format",
    "form",
    metavar="TEXT",
    help="A record as kcat writes it: %t %p %o %T %k %s %h are topic, partition, offset, ms, key, value and headers, "
    "%K and %S lengths.",
)
@click.option(
    "--show", metavar="PART,...", help="Parts of a line: topic, timestamp, partition, offset, headers, key, value."
)
@click.option("--key-separator", metavar="TEXT", help="Show the key, with this separator between the parts of a line.")
@property_flag
def command(
    topic_arguments: tuple[str, ...],
    topic_options: tuple[str, ...],
    pattern: str | None,
    bootstrap: str,
    group: str | None,
    from_beginning: bool,
    offset: str | None,
    partitions: tuple[int, ...],
    max_messages: int | None,
    timeout_ms: int | None,
    until_end: bool,
    skip_unreadable: bool,
    isolation_level: str,
    filters: tuple[str, ...],
    as_json: bool,
    form: str | None,
    show: str | None,
    key_separator: str | None,
    properties: tuple[str, ...],
) -> None:
    """Write records of topics to standard output, then new ones until Ctrl-C.

    \b
    ottla consume clicks --from-beginning --show key,value --key-separator :
    ottla consume clicks --from-beginning --until-end --json | jq .value
    ottla consume clicks views --offset @-1h --format '%T %t %k: %s\\n' --filter 'value=^/jobs'
    ottla consume clicks --group audit --from-beginning --max-messages 100
    """
    topics = _Topics(all_names(topic_arguments, topic_options), pattern, partitions)
    _check_topics(topics)
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset exclude each other.")
    start = EARLIEST if from_beginning else start_of(offset or "latest", SystemClock().now_ms())
    writer = RecordWriter(
        sys.stdout.buffer,
        _form(as_json, form, show, key_separator, properties),
        record_filter(filters),
        limit=max_messages,
        skips_unreadable=skip_unreadable,
    )
    if group is not None and (partitions or until_end or skip_unreadable):
        raise click.UsageError("--group excludes --partition, --until-end and --skip-unreadable.")
    if group is not None and not (start == EARLIEST or start.is_latest):
        raise click.UsageError("With --group, --offset is earliest or latest: where the group has committed nothing.")
    try:
        with open_cluster(bootstrap, "ottla-consume") as cluster:
            if group is None:
                _copy(cluster, topics, start, until_end, timeout_ms, writer, isolation_level)
        if group is not None and not writer.is_full:
            _copy_of_group(bootstrap, group, topics, start, timeout_ms, writer, isolation_level)
    except KeyboardInterrupt:
        pass  # the usual way to stop it
    writer.out.flush()


def _check_topics(topics: _Topics) -> None:
    if not topics.names and topics.pattern is None:
        raise click.UsageError("Name a topic, or give a --pattern.")
    if topics.names and topics.pattern is not None:
        raise click.UsageError("Name topics or give a --pattern, not both.")
    if topics.partitions and len(topics.names) != 1:
        raise click.UsageError("--partition is of one topic.")
    if topics.pattern is not None:
        try:
            re.compile(topics.pattern)
        except re.error as error:
            raise click.UsageError(f"--pattern {topics.pattern!r}: {error}.") from None


def _form(
    as_json: bool, form: str | None, show: str | None, key_separator: str | None, properties: Iterable[str]
) -> RecordForm:
    if as_json:
        return lambda place, record, _is_append_time: format_json(place, record)
    if form is not None:
        if show is not None or key_separator is not None or properties:
            raise click.UsageError("--format has its own places for what --show, --key-separator and --property say.")
        text_of = record_format(form)
        return lambda place, record, _is_append_time: text_of(place, record)
    return partial(_line, _line_format(show, key_separator, properties))


def _line(how: LineFormat, place: TopicPartition, record: Record, is_append_time: bool) -> bytes:
    return format_line(place, record, is_append_time, how)


def _copy_of_group(
    bootstrap: str,
    group: str,
    topics: _Topics,
    start: Start,
    timeout_ms: int | None,
    writer: RecordWriter,
    isolation_level: str,
) -> None:
    """Each record is committed when it was written, the last one too; Ctrl-C leaves the group."""
    from ottla.client.streams.connector import ConsumerConnector
    from ottla.records.record import Record

    with ConsumerConnector[bytes, bytes](
        bootstrap,
        group=group,
        security=given_security(),
        client_id="ottla-consume",
        auto_offset_reset="earliest" if start == EARLIEST else "latest",
        consumer_timeout_ms=timeout_ms,
        isolation_level="read_committed" if isolation_level == _LEVELS[1] else "read_uncommitted",
    ) as connector:
        (stream,) = connector.create_message_streams_by_filter(allow=topics.filter().allow)
        for message in stream:
            place = TopicPartition(message.topic, message.partition)
            record = Record(message.offset, message.timestamp_ms, message.key, message.value, message.headers)
            writer.show(place, record)
            writer.out.flush()
            if writer.is_full:
                stream.commit(message)
                return


def _copy(
    cluster: Cluster,
    topics: _Topics,
    start: Start,
    until_end: bool,
    timeout_ms: int | None,
    writer: RecordWriter,
    isolation_level: str,
) -> None:
    """Write the records; without an end also those of partitions and topics that are added later."""
    from ottla.client.fetching.fetcher import Fetcher
    from ottla.client.fetching.offsets import LATEST, isolation_level_of, list_offsets
    from ottla.client.wire.errors import ClientError

    isolation = isolation_level_of(isolation_level)
    # Without an end it waits as long as it takes: for records, and for partitions that cannot be read now.
    waits = not until_end and timeout_ms is None
    wanted = _chosen(cluster, topics)
    grows = not (topics.partitions or until_end)
    look_again = cluster.retrying.deadline(_LOOK_FOR_TOPICS_MS)
    positions = _positions(cluster, wanted, start, waits, isolation)
    ends: dict[TopicPartition, int] = {}
    if until_end:
        answers = list_offsets(cluster, dict.fromkeys(positions, LATEST), isolation=isolation)
        ends = {each: answer.offset for each, answer in answers.items()}
        _check_start(start, ends)
    with Fetcher(cluster, positions, ends, isolation=isolation) as fetcher:
        quiet_until = cluster.retrying.deadline(timeout_ms or 0)
        while not writer.is_full:
            missing = [each for each in wanted if each not in positions]
            if fetcher.is_finished and not missing and (until_end or topics.pattern is None):
                return
            try:
                for partition, offset in _positions(cluster, missing, start, waits, isolation).items():
                    positions[partition] = offset
                    fetcher.seek(partition, offset)
                if grows and topics.pattern is not None and look_again.has_passed:
                    look_again = cluster.retrying.deadline(_LOOK_FOR_TOPICS_MS)
                    _seek_added(cluster, fetcher, _matching(cluster, topics), wanted, positions)
                elif grows:
                    _seek_added(cluster, fetcher, {each.topic for each in wanted}, wanted, positions)
            except ClientError as error:
                if not (waits and error.is_retriable):
                    raise
            wait_ms = _POLL_MS if timeout_ms is None else min(_POLL_MS, quiet_until.remaining_ms)
            fetched = _poll(cluster, fetcher, start, wait_ms, waits, isolation)
            for each in fetched:
                writer.write(each, ends.get(each.partition))
            writer.out.flush()
            if fetched:
                quiet_until = cluster.retrying.deadline(timeout_ms or 0)
            elif timeout_ms is not None and quiet_until.has_passed:
                return


def _seek_added(
    cluster: Cluster,
    fetcher: Fetcher,
    topics: Iterable[str],
    wanted: list[TopicPartition],
    positions: dict[TopicPartition, int],
) -> None:
    """Start to read partitions that were added to the topics, from their beginning, when the metadata shows them.

    It is not waited for: the fetcher looks topics up beside its fetches.
    """
    for partition in [each for topic in topics for each in _known_partitions(cluster, topic)]:
        if partition not in wanted:
            wanted.append(partition)
            positions[partition] = 0
            fetcher.seek(partition, 0)


def _known_partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    from ottla.client.wire.errors import ClientError

    try:
        found = cluster.look_ups.topic(topic)
    except ClientError as error:
        if not error.is_retriable:
            raise
        return []  # the fetcher has the same problem, and reports it
    return [] if found is None else [TopicPartition(topic, number) for number in found.partitions]


def _poll(
    cluster: Cluster, fetcher: Fetcher, start: Start, wait_ms: float, waits: bool, isolation: IsolationLevel
) -> list[FetchedPartition]:
    """Where retention has overtaken the reader, continue with the oldest record."""
    from ottla.client.fetching import offsets
    from ottla.client.fetching.fetch_machine import FetchFailure
    from ottla.client.wire.errors import ClientError, OffsetOutOfRange
    from ottla.records.errors import CorruptBatch

    fetched: list[FetchedPartition] = []
    for found in fetcher.poll_each(wait_ms):
        if not isinstance(found, FetchFailure):
            fetched.append(found)
            continue
        error, offset = found.error, found.offset
        if isinstance(error, CorruptBatch):
            raise CorruptBatch(str(error), hint=DAMAGED) from error
        if isinstance(error, OffsetOutOfRange) and error.offset != start.offset:
            where = offsets.LATEST if start.is_latest else offsets.EARLIEST
            answers = offsets.list_offsets(cluster, {found.partition: where}, isolation=isolation)
            offset = answers[found.partition].offset
            say(f"note: {error}; continuing at offset {offset}", err=True)
        elif not (waits and isinstance(error, ClientError) and error.is_retriable):
            raise error
        fetcher.seek(found.partition, offset)
    return fetched


def _check_start(start: Start, ends: Mapping[TopicPartition, int]) -> None:
    """An offset beyond the end of every partition is an error; one beyond that of some is reported."""
    from ottla.client.wire.errors import OffsetOutOfRange

    if start.offset is None:
        return
    beyond = {partition: end for partition, end in ends.items() if start.offset > end}
    for partition, end in beyond.items():
        if len(beyond) == len(ends):
            raise OffsetOutOfRange(partition, start.offset)
        say(f"note: {partition}: offset {start.offset} is not in the log, which ends at {end}", err=True)


def _positions(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: Start, waits: bool, isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    """Where to start; when there is time for another request, without partitions whose leader does not answer now."""
    from ottla.client.fetching.offsets import EARLIEST, LATEST

    if start.offset is not None or not partitions:
        return dict.fromkeys(partitions, start.offset or 0)
    found = _answered(cluster, dict.fromkeys(partitions, start.question), waits, isolation)
    if start.is_time:
        later = [partition for partition, offset in found.items() if offset < 0]
        ends = _answered(cluster, dict.fromkeys(later, LATEST), waits, isolation)
        found = {partition: offset for partition, offset in found.items() if offset >= 0} | ends
    if start.back:
        starts = _answered(cluster, dict.fromkeys(found, EARLIEST), waits, isolation)
        found = {partition: max(first, found[partition] - start.back) for partition, first in starts.items()}
    return found


def _answered(
    cluster: Cluster, questions: Mapping[TopicPartition, int], waits: bool, isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    from ottla.client.fetching.offsets import list_offsets, try_list_offsets
    from ottla.client.wire.errors import ClientError

    if not questions:
        return {}
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


def _chosen(cluster: Cluster, topics: _Topics) -> list[TopicPartition]:
    """The partitions that are read now.  Raises UnknownTopic for a name, not for a pattern."""
    from ottla.client.wire.errors import ClientError

    for partition in topics.partitions:
        try:
            cluster.leader(TopicPartition(topics.names[0], partition))
        except ClientError as error:
            if not error.is_retriable:  # such as a partition that the topic does not have
                raise
    names = topics.names if topics.pattern is None else _matching(cluster, topics)
    return [
        TopicPartition(name, partition) for name in names for partition in topics.partitions or cluster.partitions(name)
    ]


def _matching(cluster: Cluster, topics: _Topics) -> list[str]:
    return topics.filter().select(info.name for info in cluster.refresh(None) if not info.error_code)


def _line_format(show: str | None, key_separator: str | None, properties: Iterable[str]) -> LineFormat:
    found = assignments(properties, "--property")
    check_names(found, _PROPERTIES, "--property")
    shown = {part for name, part in _PARTS.items() if truth(name, found.get(name, str(part == "value")))}
    if key_separator is not None:
        shown.add("key")
    if show is not None:
        shown = {part.strip() for part in show.split(",")}
        check_names(dict.fromkeys(shown, ""), (_TOPIC, *_PARTS.values()), "--show")
    default = LineFormat()
    return LineFormat(
        has_key="key" in shown,
        has_headers="headers" in shown,
        has_value="value" in shown,
        has_topic=_TOPIC in shown,
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
