"""Groups of confluent-kafka's consumers: the paper's two kinds of delivery, and members that come, go and die.

Point-to-point: the members of a group share a topic's partitions.  Publish/subscribe: each group gets everything.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.interop.group_member import GroupMember

pytestmark = pytest.mark.interop

PARTITIONS = 4
RECORDS = 200
# Long enough for members to send heartbeats on a busy machine, and for a static member's process to start again; the
# test of a member that dies waits for it.
SESSION_TIMEOUT_MS = 10_000
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": "200",
}
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 200}
PROTOCOLS = {
    "range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "cooperative-sticky": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
EVERY_PROTOCOL = pytest.mark.parametrize("options", PROTOCOLS.values(), ids=PROTOCOLS)
Join = Callable[..., GroupMember]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = f"shared-{uuid.uuid4().hex[:10]}"
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def join(broker: RunningBroker, topic: str, options: dict[str, object]) -> Iterator[Join]:
    """Starts a member of a group; members that still run at the end of the test are killed."""
    with ExitStack() as members:

        def start(group_id: str = "", **more: object) -> GroupMember:
            settings = {**options, **{name.replace("_", "."): value for name, value in more.items()}}
            return members.enter_context(GroupMember(topic, broker.bootstrap, group_id or f"of-{topic}", settings))

        yield start


def produce(bootstrap: str, topic: str, count: int = RECORDS) -> None:
    """`count` records, evenly over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(120) == 0


def everything(count: int = RECORDS) -> Counter[tuple[int, int]]:
    """Each record once."""
    return Counter((number % PARTITIONS, number // PARTITIONS) for number in range(count))


def owners_are(*members: GroupMember) -> Callable[[], bool]:
    """All partitions are owned, none twice, and each member has some."""

    def hold() -> bool:
        owned = [partition for member in members for partition in member.owned]
        return sorted(owned) == list(range(PARTITIONS)) and all(member.owned for member in members)

    return hold


@EVERY_PROTOCOL
def test_members_of_a_group_share_the_partitions_and_read_each_record_once(
    broker: RunningBroker, topic: str, join: Join
) -> None:
    first, second = join(), join()
    eventually(owners_are(first, second))
    produce(broker.bootstrap, topic)
    eventually(lambda: len(first.read) + len(second.read) >= RECORDS)
    first.leave()
    second.leave()
    assert Counter(first.read) + Counter(second.read) == everything()
    assert first.read
    assert second.read


@EVERY_PROTOCOL
def test_each_group_reads_every_record(broker: RunningBroker, topic: str, join: Join) -> None:
    produce(broker.bootstrap, topic)
    one, other = join(f"one-{topic}"), join(f"other-{topic}")
    eventually(lambda: len(one.read) >= RECORDS and len(other.read) >= RECORDS)
    one.leave()
    other.leave()
    assert Counter(one.read) == Counter(other.read) == everything()


@EVERY_PROTOCOL
def test_remaining_members_take_the_partitions_when_one_leaves_or_dies(
    broker: RunningBroker, topic: str, join: Join
) -> None:
    staying, leaving, dying = join(), join(), join()
    eventually(owners_are(staying, leaving, dying))
    produce(broker.bootstrap, topic)
    eventually(lambda: len(staying.read) + len(leaving.read) + len(dying.read) >= RECORDS)
    leaving.leave()
    eventually(owners_are(staying, dying))
    dying.kill()
    eventually(owners_are(staying))
    produce(broker.bootstrap, topic)
    seen = [staying, leaving, dying]
    eventually(lambda: everything(2 * RECORDS) <= Counter(record for member in seen for record in member.read))


@pytest.mark.parametrize("options", [PROTOCOLS["range"], PROTOCOLS["consumer"]], ids=["range", "consumer"])
def test_static_member_returns_to_its_partitions_without_a_rebalance_of_others(
    broker: RunningBroker, topic: str, join: Join, options: dict[str, object]
) -> None:
    first, second = join(group_instance_id="first"), join(group_instance_id="second")
    eventually(owners_are(first, second))
    changes_count, owned = first.assignments_count, set(second.owned)
    if options["group.protocol"] == "consumer":
        second.leave()  # a static member says that it will return
    else:
        second.kill()
    again = join(group_instance_id="second")
    eventually(lambda: again.owned == owned)
    assert first.assignments_count == changes_count


@EVERY_PROTOCOL
def test_group_continues_at_its_offsets_when_the_broker_was_killed(
    topic: str, options: dict[str, object], broker: RunningBroker
) -> None:
    produce(broker.bootstrap, topic)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"killed-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **options,
    }
    read: Counter[tuple[int | None, int | None]] = Counter()
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while sum(read.values()) < RECORDS // 2:
        read.update((m.partition(), m.offset()) for m in consumer.consume(RECORDS // 2, 1) if m.error() is None)
    consumer.commit(asynchronous=False)
    committed = {each.partition: each.offset for each in consumer.committed(_all_of(topic), 10)}
    broker.kill()
    broker.start()
    # The same consumer continues: it finds its coordinator again, and its group unchanged.
    while sum(read.values()) < RECORDS:
        read.update((m.partition(), m.offset()) for m in consumer.consume(RECORDS, 1) if m.error() is None)
    consumer.close()
    assert everything() <= read
    again = Consumer(settings)
    assert {each.partition: each.offset for each in again.committed(_all_of(topic), 10)} == committed
    again.close()


def _all_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(PARTITIONS)]
