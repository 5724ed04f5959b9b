"""A repaired log has empty batches where records were lost; every client skips them and misses nothing else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla
from tests.interop import aiokafka_client, confluent_client, kafka_python_client
from tests.interop.expected_records import Sent
from tests.interop.stored_batches import stored_batches
from tests.peers.java_tool import CONSOLE_CONSUMER, DUMP_LOG_SEGMENTS, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

BATCHES = 20
# At the start, two neighbours in the middle, and the last one.
DAMAGED = (0, 7, 8, BATCHES - 1)


def damage(path: Path, positions: list[int]) -> None:
    """Flip a bit in the records of the batches at these positions."""
    content = bytearray(path.read_bytes())
    for position in positions:
        content[position + 65] ^= 4
    path.write_bytes(content)


@pytest.fixture(scope="module")
def repaired() -> Iterator[tuple[RunningBroker, str, list[Sent]]]:
    """A broker whose only topic lost some batches, and the records that are left."""
    topic = f"repaired-{uuid.uuid4().hex[:8]}"
    sent = [Sent(b"key", b"value %d" % number, (), 1_700_000_000_000 + number) for number in range(BATCHES)]
    with RunningBroker(settings={"log.retention.ms": "-1"}) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic(topic, 1)
        for each in sent:
            confluent_client.produce(broker.bootstrap, topic, [each], "none")
        broker.stop()
        segment = broker.data_dir / f"{topic}-0" / f"{0:020}.log"
        headers = stored_batches(broker.data_dir, topic)
        assert len(headers) == BATCHES
        ends = [sum(header.size_bytes for header in headers[:number]) for number in range(BATCHES)]
        damage(segment, [ends[number] for number in DAMAGED])
        [told] = [
            json.loads(line) for line in ottla("log", "repair", broker.data_dir, "--execute", "--json").out.splitlines()
        ]
        assert (told["lost_offsets"], told["kept_offsets"]) == (len(DAMAGED), BATCHES - len(DAMAGED))
        broker.start()
        yield broker, topic, [each for number, each in enumerate(sent) if number not in DAMAGED]


def test_repaired_log_is_read_by_confluent_kafka(repaired: tuple[RunningBroker, str, list[Sent]]) -> None:
    broker, topic, left = repaired
    assert confluent_client.consume(broker.bootstrap, topic, len(left)) == left


def test_repaired_log_is_read_by_kafka_python(repaired: tuple[RunningBroker, str, list[Sent]]) -> None:
    broker, topic, left = repaired
    assert kafka_python_client.consume(broker.bootstrap, topic, len(left)) == left


def test_repaired_log_is_read_by_aiokafka(repaired: tuple[RunningBroker, str, list[Sent]]) -> None:
    broker, topic, left = repaired
    assert aiokafka_client.consume(broker.bootstrap, topic, len(left)) == left


def test_repaired_log_is_read_by_ottlas_client(repaired: tuple[RunningBroker, str, list[Sent]]) -> None:
    broker, topic, left = repaired
    arguments = ("consume", topic, "--from-beginning", "--until-end", "--json", "-b", broker.bootstrap)
    objects = [json.loads(line) for line in ottla(*arguments).out.splitlines()]
    assert [each["value"].encode() for each in objects] == [each.value for each in left]
    assert [each["offset"] for each in objects] == [each for each in range(BATCHES) if each not in DAMAGED]


def test_repaired_log_is_read_by_apache_kafka(repaired: tuple[RunningBroker, str, list[Sent]]) -> None:
    broker, topic, left = repaired
    try:
        arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0", "--from-beginning")
        done = run_tool(
            CONSOLE_CONSUMER, *arguments, "--max-messages", str(len(left)), "--timeout-ms", "120000", timeout=240
        )
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert done.stdout.encode().split(b"\n")[:-1] == [each.value for each in left]
    files = ",".join(str(path) for path in (broker.data_dir / f"{topic}-0").glob("0*.log"))
    dump = run_tool(DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", files)
    assert dump.stdout.count("isvalid: true") == BATCHES - 1, "two neighbours are one gap"
    assert "isvalid: false" not in dump.stdout


def test_appends_to_a_repaired_log_continue_at_its_end(repaired: tuple[RunningBroker, str, list[Sent]]) -> None:
    broker, topic, left = repaired
    more = [Sent(None, b"appended", (), 1_700_000_000_999)]
    assert confluent_client.produce(broker.bootstrap, topic, more, "none") == [BATCHES]
    assert confluent_client.consume(broker.bootstrap, topic, len(left) + 1) == [*left, *more]
