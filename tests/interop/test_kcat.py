"""kcat: produce, consume by partition, list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.testing.broker import RunningBroker
from tests.interop import aiokafka_client, confluent_client, kafka_python_client
from tests.interop.expected_records import CODECS
from tests.interop.kcat_client import consume, produce, run_kcat
from tests.interop.stored_batches import assert_stored_with, stored_batches

pytestmark = pytest.mark.interop

HEADERS = ("-H", "source=kcat", "-H", "empty=", "-H", "größe=ß")
EXPECTED_HEADERS = (("source", b"kcat"), ("empty", b""), ("größe", "ß".encode()))


@pytest.mark.parametrize("codec", CODECS)
def test_every_library_reads_the_records_of_kcat(broker: RunningBroker, topic: str, tmp_path: Path, codec: str) -> None:
    # Debian's librdkafka leaves batches uncompressed, silently, when a broker does not offer Produce version 0.
    large = tmp_path / "large"
    large.write_bytes(b"half of a value of this size " * 30_000)
    lines = [(b"key-%d" % (n % 7), b"value %d of a topic" % n) for n in range(300)]
    produce(broker.bootstrap, topic, "-z", codec, "-K", ":", *HEADERS, input=b"\n".join(map(b":".join, lines)))
    produce(broker.bootstrap, topic, "-z", codec, "-k", "large", *HEADERS, str(large))
    assert_stored_with(broker.data_dir, topic, codec)

    expected = [(key, value, EXPECTED_HEADERS) for key, value in [*lines, (b"large", large.read_bytes())]]
    for client in (confluent_client, kafka_python_client, aiokafka_client):
        read = client.consume(broker.bootstrap, topic, len(expected))
        assert [record[:3] for record in read] == expected, client.__name__
    read_by_kcat = consume(broker.bootstrap, topic)
    assert [offset for offset, _ in read_by_kcat] == list(range(len(expected)))
    assert [record[:3] for _, record in read_by_kcat] == expected


def test_kcat_sends_null_or_empty_values_as_its_flags_say(bootstrap: str, topic: str) -> None:
    # Of each line without a value: empty by default, a tombstone with -Z.
    produce(bootstrap, topic, "-K", ":", input=b"first:\n:no key\n")
    produce(bootstrap, topic, "-K", ":", "-Z", input=b"second:\n:no key\n")
    expected = [(b"first", b""), (b"", b"no key"), (b"second", None), (None, b"no key")]
    assert [record[:2] for _, record in consume(bootstrap, topic)] == expected
    assert [record[:2] for record in confluent_client.consume(bootstrap, topic, 4)] == expected


def test_kcat_sends_idempotently(broker: RunningBroker, topic: str) -> None:
    produce(broker.bootstrap, topic, "-X", "enable.idempotence=true", input=b"one\ntwo\n")
    assert [record.value for _, record in consume(broker.bootstrap, topic)] == [b"one", b"two"]
    assert all(header.producer_id >= 0 for header in stored_batches(broker.data_dir, topic))


def test_kcat_starts_at_the_given_offset(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, input=b"".join(b"%d\n" % n for n in range(20)))
    options = ("-C", "-q", "-e", "-t", topic, "-p", "0")
    assert run_kcat(bootstrap, *options, "-o", "17") == b"17\n18\n19\n"
    assert run_kcat(bootstrap, *options, "-o", "-2") == b"18\n19\n"
    assert run_kcat(bootstrap, *options, "-o", "beginning", "-c", "1") == b"0\n"


def test_kcat_finds_offsets_by_time(bootstrap: str, topic: str, now_ms: int) -> None:
    produce(bootstrap, topic, input=b"one\ntwo\n")
    for time_ms, offset in [(now_ms - 60_000, 0), (-2, 0), (-1, 2)]:
        answer = json.loads(run_kcat(bootstrap, "-Q", "-J", "-t", f"{topic}:0:{time_ms}"))
        assert answer[topic]["0"]["offset"] == offset


def test_kcat_lists_brokers_and_topics(broker: RunningBroker, topic: str) -> None:
    listing = json.loads(run_kcat(broker.bootstrap, "-L", "-J"))
    [only] = listing["brokers"]
    assert only["name"] == broker.bootstrap
    [described] = [row for row in listing["topics"] if row["topic"] == topic]
    assert described["partitions"] == [
        {"partition": 0, "leader": only["id"], "replicas": [{"id": only["id"]}], "isrs": [{"id": only["id"]}]}
    ]
