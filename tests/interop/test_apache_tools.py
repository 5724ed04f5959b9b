"""The command-line tools that Apache Kafka 4.3 ships, against Ottla: the Java clients, produce, consume and admin."""

from __future__ import annotations

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.interop import confluent_client
from tests.interop.expected_records import CODECS, Sent
from tests.interop.stored_batches import assert_stored_with, stored_batches
from tests.peers.java_tool import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    GET_OFFSETS,
    PRODUCER_PERFORMANCE,
    TOPIC_COMMAND,
    run_tool,
)
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

LARGE_VALUE = "half of a value of this size " * 30_000


def run(main_class: str, *arguments: str, input: str | None = None) -> str:
    """A tool's output; it must succeed without warnings.  Skips where Java or the jars are unavailable."""
    try:
        done = run_tool(main_class, *arguments, input=input)
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert done.returncode == 0, done.stderr + done.stdout
    # It prints its log4j configuration and the options that its next release renames.
    assert "ERROR" not in done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_writes_keys_headers_nulls_and_large_values(
    broker: RunningBroker, topic: str, codec: str
) -> None:
    lines = [
        "source:java,größe:ß\tkey\twert €",
        "none:NULL,empty:\tkey\t",
        "NULL\ttombstone\tNULL",
        "NULL\tNULL\tno key",
        f"NULL\tlarge\t{LARGE_VALUE}",
        *(f"NULL\tkey-{number % 7}\tvalue {number}" for number in range(200)),
    ]
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    options = [option for name in properties for option in ("--reader-property", name)]
    arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--compression-codec", codec, *options)
    run(CONSOLE_PRODUCER, *arguments, input="".join(f"{line}\n" for line in lines))

    read = confluent_client.consume(broker.bootstrap, topic, len(lines))
    assert [record[:3] for record in read] == [
        (b"key", "wert €".encode(), (("source", b"java"), ("größe", "ß".encode()))),
        (b"key", b"", (("none", None), ("empty", b""))),
        (b"tombstone", None, ()),
        (None, b"no key", ()),
        (b"large", LARGE_VALUE.encode(), ()),
        *((b"key-%d" % (number % 7), b"value %d" % number, ()) for number in range(200)),
    ]
    assert_stored_with(broker.data_dir, topic, codec)
    assert all(header.producer_id >= 0 for header in stored_batches(broker.data_dir, topic)), "idempotent by default"


def test_console_consumer_reads_every_codec_by_partition(bootstrap: str, topic: str, now_ms: int) -> None:
    expected = []
    for number, codec in enumerate(CODECS):
        sent = [
            Sent(
                b"key", f"{codec} wert € ".encode() * 40, (("codec", codec.encode()), ("null", None)), now_ms + number
            ),
            Sent(None, b"", (), now_ms + number),
            Sent(b"tombstone", None, (), now_ms + number),
        ]
        confluent_client.produce(bootstrap, topic, sent, codec)
        at = f"CreateTime:{now_ms + number}\tPartition:0\tOffset:"
        first = 3 * number
        expected += [
            f"{at}{first}\tcodec:{codec},null:NULL\tkey\t" + f"{codec} wert € " * 40,
            f"{at}{first + 1}\tNO_HEADERS\tNULL\t",
            f"{at}{first + 2}\tNO_HEADERS\ttombstone\tNULL",
        ]
    printed = ("timestamp", "partition", "offset", "headers", "key")
    options = [option for name in printed for option in ("--formatter-property", f"print.{name}=true")]
    position = ("--partition", "0", "--offset", "earliest", "--max-messages", str(len(expected)))
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, *position, "--timeout-ms", "20000")
    output = run(CONSOLE_CONSUMER, *arguments, *options, "--formatter-property", "null.literal=NULL")
    assert output.split("\n") == [*expected, ""]


def test_topic_command_creates_describes_lists_and_deletes(bootstrap: str) -> None:
    to_server = ("--bootstrap-server", bootstrap)
    named = (*to_server, "--topic", "made-by-java")
    created = run(TOPIC_COMMAND, *named, "--create", "--partitions", "3", "--config", "retention.ms=1234567")
    assert "Created topic made-by-java." in created
    summary, *partitions = run(TOPIC_COMMAND, *named, "--describe").splitlines()
    assert "PartitionCount: 3" in summary
    assert "ReplicationFactor: 1" in summary
    assert "retention.ms=1234567" in summary
    assert [f"Partition: {index}" in line for index, line in enumerate(partitions)] == [True] * 3
    assert "made-by-java" in run(TOPIC_COMMAND, *to_server, "--list").splitlines()
    run(TOPIC_COMMAND, *named, "--delete")
    with Cluster(bootstrap) as cluster:
        assert "made-by-java" not in {topic.name for topic in Admin(cluster).list_topics()}


def test_get_offsets_shows_the_ends_of_a_partition(bootstrap: str, topic: str, now_ms: int) -> None:
    sent = [Sent(None, b"value", (), now_ms + number) for number in range(10)]
    confluent_client.produce(bootstrap, topic, sent, "none")
    named = ("--bootstrap-server", bootstrap, "--topic", topic)
    for time, offset in [("latest", 10), (str(now_ms + 4), 4)]:
        assert run(GET_OFFSETS, *named, "--time", time).splitlines() == [f"{topic}:0:{offset}"]


def test_producer_performance_is_served_with_its_defaults(broker: RunningBroker, topic: str) -> None:
    count = 20_000
    load = ("--num-records", str(count), "--record-size", "100", "--throughput", "-1")
    properties = ("--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all")
    output = run(PRODUCER_PERFORMANCE, "--topic", topic, *load, *properties)
    assert f"{count} records sent" in output
    headers = stored_batches(broker.data_dir, topic)
    assert sum(header.records_count for header in headers) == count
    assert {header.producer_id >= 0 for header in headers} == {True}
    # The producer's sequence continues from batch to batch: nothing is missing and nothing is there twice.
    assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]
    read = confluent_client.consume(broker.bootstrap, topic, count)
    assert {len(record.value or b"") for record in read} == {100}
    assert len(read) == count
