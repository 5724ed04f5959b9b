"""A broker that a test kills, pauses, slows down, fills up and makes older: clients see the effect of each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.groups.groups import GroupAdmin, UnknownGroup
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, UnknownTopic
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.testing import ANY, ControlledBroker, Namespace, Record, assert_produced, consume_all, produce
from ottla.testing.broker import BrokerDidNotStart, RunningBroker
from ottla.testing.controlled.broker import BrokerEnded
from tests.eventually import eventually

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
SESSION_MS = 60_000
# Longer than any pause of an undisturbed broker, even on a busy machine, and short enough for a test.
LATE_MS = 700
# A loop's timer counts from the start of its turn.
TURN_MS = 100
# A client that is refused for this long has received the reason.
SOON_MS = 5_000


@pytest.fixture(scope="module")
def broker() -> Iterator[ControlledBroker]:
    with ControlledBroker() as running:
        yield running


@pytest.fixture
def namespace(broker: ControlledBroker, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    with broker.namespace(request.node.name) as made:
        yield made
        broker.restore()


def took_ms(begin_s: float) -> float:
    return (time.monotonic() - begin_s) * 1000


def test_records_come_back_as_they_were_produced(namespace: Namespace) -> None:
    orders = namespace.topic("orders", partitions=3)
    records = [
        "paid",
        b"\x00\xff",
        ("order-7", "shipped"),
        ("order-7", None),
        Record("lost", headers={"trace": b"1", "by": None}, partition=2, timestamp_ms=1_000),
    ]
    produce(orders, records)
    assert_produced(orders, records)
    assert [message.value for message in consume_all(orders) if message.key == b"order-7"] == [b"shipped", None]


def test_late_record_is_waited_for(namespace: Namespace) -> None:
    orders = namespace.name("orders")
    program = f"""
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing import produce
Admin(Cluster({orders.bootstrap!r})).create_topic({str(orders)!r})
for text in ("one", "two"):
    produce({str(orders)!r}, [text], bootstrap={orders.bootstrap!r})
"""
    with subprocess.Popen([sys.executable, "-c", program]) as writer:
        assert_produced(orders, ["one", "two"], timeout_ms=120_000)
        assert writer.wait() == 0


def test_missing_records_are_reported_when_the_time_is_over(namespace: Namespace) -> None:
    orders = namespace.topic("orders")
    produce(orders, ["one"])
    with pytest.raises(AssertionError, match="missing:\n  Record\\(value=b'two'\\)"):
        assert_produced(orders, ["one", "two"], timeout_ms=50)
    with pytest.raises(TimeoutError, match="1 records after 50 ms, and not 2"):
        consume_all(orders, count=2, timeout_ms=50)
    with pytest.raises(UnknownTopic):
        consume_all(namespace.name("nothing"), timeout_ms=50)


def test_names_of_a_namespace_are_unique_and_deleted_at_its_end(broker: ControlledBroker) -> None:
    with broker.namespace("a [test/with] signs") as namespace, Cluster(broker.bootstrap) as cluster:
        one, two = namespace.topic("orders"), namespace.topic("exact-orders", exact=True)
        assert one.startswith("a-test-with-signs-")
        assert one.endswith(".orders")
        assert two == "exact-orders"
        assert namespace.topics() == [one, two]
        with broker.namespace() as other:
            with pytest.raises(BrokerRefused):
                other.topic("exact-orders", exact=True)
            other.topic("orders")
        # By the tested program.
        Admin(cluster).create_topic(namespace.name("made"))
        group = namespace.group("billing")
        join(cluster, group)
    with Cluster(broker.bootstrap) as cluster:
        left = [topic.name for topic in Admin(cluster).list_topics() if not topic.name.startswith("__")]
        assert left == []


def test_group_without_members_is_gone_with_its_namespace(broker: ControlledBroker) -> None:
    with broker.namespace() as namespace, Cluster(broker.bootstrap) as cluster:
        group = namespace.group("billing")
        join(cluster, group)
        broker.clock.advance(milliseconds=2 * SESSION_MS, time_outs=True)
        assert group in [each.group_id for each in GroupAdmin(cluster).list_groups()]
    with Cluster(broker.bootstrap) as cluster:
        assert group not in [each.group_id for each in GroupAdmin(cluster).list_groups()]
    broker.restore()


def test_what_was_acknowledged_is_there_after_a_kill(broker: ControlledBroker, namespace: Namespace) -> None:
    orders = namespace.topic("orders")
    produce(orders, ["one"])
    address = broker.bootstrap
    with broker.killed(), pytest.raises(CallTimedOut):
        consume_all(orders, timeout_ms=0)
    assert broker.bootstrap == address
    assert_produced(orders, ["one"])


def test_paused_broker_answers_no_client_until_it_is_resumed(broker: ControlledBroker, namespace: Namespace) -> None:
    orders = namespace.topic("orders")
    with broker.paused():
        with pytest.raises(CallTimedOut):
            produce(orders, ["one"], timeout_ms=SOON_MS)
        with pytest.raises(RuntimeError, match="resume it first"):
            broker.fill_disk()
    produce(orders, ["two"])
    assert "two" in [message.value.decode() for message in consume_all(orders) if message.value is not None]


def test_broker_runs_again_after_a_block_that_raised_started_or_killed_it(
    broker: ControlledBroker, namespace: Namespace
) -> None:
    orders = namespace.topic("orders")
    with pytest.raises(ZeroDivisionError), broker.killed():
        raise ZeroDivisionError
    produce(orders, ["one"])
    with broker.killed():
        broker.start()
        produce(orders, ["two"])
    with broker.paused():
        broker.kill()
    broker.start()
    assert_produced(orders, ["one", "two"])


def test_broker_with_a_full_disk_refuses_records_and_topics_and_serves_reads(
    broker: ControlledBroker, namespace: Namespace
) -> None:
    orders = namespace.topic("orders")
    produce(orders, ["one"])
    with broker.full_disk():
        with pytest.raises(OttlaError, match="KAFKA_STORAGE_ERROR"):
            produce(orders, ["two"], timeout_ms=SOON_MS)
        with pytest.raises(BrokerRefused) as refused:
            namespace.topic("new")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert_produced(orders, ["one"])
    produce(orders, ["three"])
    assert_produced(orders, ["one", "three"])


def test_late_requests_are_answered_late_and_in_time_again(broker: ControlledBroker, namespace: Namespace) -> None:
    with Cluster(broker.bootstrap) as cluster:
        # It is connected already.
        cluster.refresh([])
        with broker.slowed(answers_ms=LATE_MS):
            begin_s = time.monotonic()
            cluster.refresh([])
            assert took_ms(begin_s) >= LATE_MS - TURN_MS
        with broker.slowed(flushes_ms=LATE_MS):
            cluster.refresh([])
        broker.slow_down(answers_ms=10**9)
        broker.slow_down()
        cluster.refresh([])


def test_request_that_waits_long_for_its_flush_gets_a_line_in_the_log(
    broker: ControlledBroker, namespace: Namespace
) -> None:
    orders = namespace.topic("orders")
    with broker.slowed(flushes_ms=LATE_MS):
        for _ in range(5):  # at most one line a second is logged, perhaps for another request
            produce(orders, ["late"])
            lines = [line for line in broker.log_lines if "request.slow" in line and "api=PRODUCE" in line]
            if lines:
                break
        assert "flush_ms=" in lines[0]
        assert "peer=127.0.0.1" in lines[0]


def test_slow_flushes_delay_acknowledgements(broker: ControlledBroker, namespace: Namespace) -> None:
    orders = namespace.topic("orders")
    produce(orders, ["one"])
    with broker.slowed(flushes_ms=LATE_MS):
        begin_s = time.monotonic()
        produce(orders, ["two"])
        assert took_ms(begin_s) >= LATE_MS
    assert_produced(orders, ["one", "two"])


def test_records_get_the_brokers_time_under_log_append_time(broker: ControlledBroker, namespace: Namespace) -> None:
    orders = namespace.topic("orders", configs=APPEND_TIME)
    broker.clock.freeze(NOON)
    produce(orders, ["one", "two"])
    broker.clock.advance(minutes=5)
    produce(orders, ["three"])
    assert broker.clock.now() == NOON + timedelta(minutes=5)
    assert [message.timestamp for message in consume_all(orders)] == [NOON, NOON, NOON + timedelta(minutes=5)]
    broker.clock.run()
    produce(orders, ["four"])
    latest = consume_all(orders)[-1].timestamp
    assert latest is not None
    assert NOON + timedelta(minutes=5) <= latest <= broker.clock.now()


def test_retention_has_been_applied_when_the_clock_has_moved(broker: ControlledBroker, namespace: Namespace) -> None:
    week, year = namespace.topic("week"), namespace.topic("year", configs={"retention.ms": str(365 * 86_400_000)})
    for topic in (week, year):
        produce(topic, ["old"])
    broker.clock.advance(days=6)
    assert_produced(week, ["old"])
    broker.clock.advance(days=2)
    assert_produced(week, [])
    assert_produced(year, ["old"])
    produce(week, [Record("new", timestamp_ms=broker.clock.now_ms())])
    assert_produced(week, ["new"])
    assert consume_all(week)[0].offset == 1


def test_clock_stays_where_it_was_moved_to_over_a_kill(broker: ControlledBroker, namespace: Namespace) -> None:
    orders = namespace.topic("orders", configs=APPEND_TIME)
    broker.clock.freeze(NOON)
    with broker.killed():
        broker.clock.advance(hours=1)
    produce(orders, ["one"])
    assert_produced(orders, [Record("one", timestamp_ms=int(NOON.timestamp() * 1000) + 3_600_000)])


def test_clock_is_the_machines_again_after_restore(broker: ControlledBroker, namespace: Namespace) -> None:
    orders = namespace.topic("orders", configs=APPEND_TIME)
    broker.clock.advance(days=30, time_outs=True)
    broker.restore()
    begin_ms = time.time() * 1000
    produce(orders, ["one"])
    [message] = consume_all(orders)
    assert begin_ms - 1 <= message.timestamp_ms <= time.time() * 1000 + 1


def test_member_without_heartbeats_is_removed_when_its_session_has_expired(
    broker: ControlledBroker, namespace: Namespace
) -> None:
    group = namespace.group("billing")
    with Cluster(broker.bootstrap) as cluster:
        join(cluster, group)
        broker.clock.advance(days=1)
        assert state_of(cluster, group) == "Stable", "the time of day ends no session"
        broker.clock.advance(milliseconds=SESSION_MS // 2, time_outs=True)
        assert state_of(cluster, group) == "Stable"
        broker.clock.advance(milliseconds=SESSION_MS, time_outs=True)
        # Its shard's turn may come a little later.
        eventually(lambda: state_of(cluster, group), lambda state: state == "Empty")


def join(cluster: Cluster, group: str) -> None:
    """One member joins and then sends nothing."""

    def attempt() -> JoinGroupResponse | None:
        deadline = cluster.retrying.deadline()
        member_id, protocols = "", [JoinGroupRequestProtocol("any", b"")]
        while True:
            request = JoinGroupRequest(group, SESSION_MS, SESSION_MS, member_id, None, "test", protocols)
            answer = connection.call(ApiKey.JOIN_GROUP, request, JoinGroupResponse, deadline)
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                return None if answer.error_code else answer
            member_id = answer.member_id

    # Makes the topic of offsets, as a client's look for its coordinator does.
    with pytest.raises(UnknownGroup):
        GroupAdmin(cluster).delete(group)
    deadline = cluster.retrying.deadline()
    connection = cluster.connect_any(deadline)
    joined = eventually(attempt)
    assert joined is not None
    request = SyncGroupRequest(group, joined.generation_id, joined.member_id, None, "test", "any")
    assert connection.call(ApiKey.SYNC_GROUP, request, SyncGroupResponse, deadline).error_code == 0


def state_of(cluster: Cluster, group: str) -> str:
    [state] = [each.state for each in GroupAdmin(cluster).list_groups() if each.group_id == group]
    return state


def test_settings_of_the_test_win_and_those_of_the_environment_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_NUM_PARTITIONS", "7")
    with ControlledBroker({"group.initial.rebalance.delay.ms": "5"}) as broker, Cluster(broker.bootstrap) as cluster:
        assert len(Admin(cluster).list_topics()) == 0
        Admin(cluster).create_topic("orders")
        assert len(cluster.partitions("orders")) == 1


def test_setting_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(BrokerDidNotStart, match=r"no setting num\.partitoins") as raised:
        ControlledBroker({"num.partitoins": "3"}).__enter__()
    assert raised.value.hint == "did you mean num.partitions?"


def test_broker_that_ends_unexpectedly_is_reported_and_runs_again(
    broker: ControlledBroker, namespace: Namespace
) -> None:
    orders = namespace.topic("orders")
    produce(orders, ["one"])
    os.kill(broker.pid, signal.SIGKILL)
    eventually(lambda: broker.is_running, lambda runs: not runs)
    with pytest.raises(BrokerEnded, match="SIGKILL"):
        broker.restore()
    assert_produced(orders, ["one"])


def test_given_data_directory_is_kept(tmp_path: Path) -> None:
    with ControlledBroker(data_dir=tmp_path) as broker:
        produce("orders", ["one"], bootstrap=broker.bootstrap)
    # As any broker finds it.
    with RunningBroker(tmp_path) as plain:
        assert_produced("orders", [Record(ANY, partition=0)], bootstrap=plain.bootstrap)


@pytest.mark.parametrize("is_paused", [False, True])
def test_broker_and_its_directory_are_gone_when_the_tests_process_is_killed(tmp_path: Path, is_paused: bool) -> None:
    program = """
import sys
from ottla.testing import ControlledBroker
broker = ControlledBroker().start()
if len(sys.argv) > 1:
    broker.pause()
print(broker.pid, broker.data_dir, flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program, *(["paused"] if is_paused else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        pid, directory = tests.stdout.readline().decode().split()
        assert Path(directory).is_dir()
        tests.kill()
    eventually(lambda: Path(f"/proc/{pid}").exists() or Path(directory).exists(), lambda there: not there)


def test_clean_in_progress_ends_when_the_disk_is_full_and_is_done_when_there_is_room() -> None:
    settings = {"log.cleaner.io.max.bytes.per.second": "600000", "log.cleaner.backoff.ms": "50"}
    with ControlledBroker(settings) as broker, broker.namespace() as namespace:
        configs = {"cleanup.policy": "compact", "segment.bytes": "1000000", "min.cleanable.dirty.ratio": "0.01"}
        keyed = namespace.topic("keyed", configs=configs)
        directory = broker.data_dir / f"{keyed}-0"
        records = [Record(key=b"%d" % number, value=os.urandom(300_000)) for number in range(5)]
        produce(keyed, records)
        eventually(lambda: any(directory.glob("*.cleaned")))
        with broker.full_disk():
            eventually(lambda: any("log.clean_without_room" in line for line in broker.log_lines))
            assert not any(directory.glob("*.cleaned"))
        eventually(lambda: any(" log.cleaned " in line for line in broker.log_lines))
