"""Consumers with their own threads on a real ZooKeeper: connections fail, servers stop, processes are paused."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest

from ottla.client.consumer_registry.group_admin import GroupContents, read_group
from ottla.client.consumer_registry.group_nodes import BadGroupName
from ottla.client.membership.membership import Event, Failed
from ottla.client.membership.tree.brokers import NoBrokersInTree, brokers_of_tree
from ottla.client.membership.tree.membership import TreeMembership, TreeOptions, new_consumer_id
from ottla.consumers.effects import Committed, Left, Lost, Released, Revoke, Settled, Start
from ottla.coordination import layout
from ottla.coordination.broker_registry import BrokerListener, BrokerRegistration, BrokerRegistry
from ottla.coordination.tree import Tree
from ottla.coordination.zookeeper.access import (
    BadConnectString,
    ZooKeeperRefused,
    ZooKeeperUnreachable,
)
from ottla.coordination.zookeeper.backend import ZooKeeperBackend, ZooKeeperKeeper
from ottla.coordination.zookeeper.security import UNSECURED, client_security
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run
from ottla.testing.running import pause_process
from ottla.testing.zookeeper import SESSION_TIMEOUT_MS_MAX, RunningZooKeeper
from tests.contract.registry_samples import PATHS, make_topic, reading
from tests.contract.test_tree_member import Member as LoopMember
from tests.contract.tree_backends import until
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

Found = TypeVar("Found")

T0 = TopicPartition("t", 0)
PATIENT = TreeOptions(connection_timeout_ms=60_000)
# A busy machine may take long to start a server again.
LONG_SESSION = TreeOptions(session_timeout_ms=SESSION_TIMEOUT_MS_MAX, connection_timeout_ms=60_000)
SHORT_SESSION = TreeOptions(session_timeout_ms=2_000, connection_timeout_ms=60_000)


@pytest.fixture
def server() -> Iterator[RunningZooKeeper]:
    """One that the test may stop."""
    with skips_without_zookeeper(), RunningZooKeeper() as running:
        yield running


def in_tree(connect: str, work: Callable[[Tree], Awaitable[Found]], *, digest: str | None = None) -> Found:
    async def done() -> Found:
        security = UNSECURED if digest is None else client_security({"zookeeper.digest": digest})
        session = await ZooKeeperBackend(connect, connection_timeout_ms=60_000, security=security).connect()
        try:
            return await work(session)
        finally:
            await session.close()

    return run(done())


def prepare(connect: str, partitions_count: int = 4, *, digest: str | None = None) -> None:
    async def work(tree: Tree) -> None:
        await layout.lay_out(tree)
        await make_topic(tree, "t", partitions_count)

    in_tree(connect, work, digest=digest)


def group_at(connect: str) -> GroupContents:
    return in_tree(connect, lambda tree: read_group(tree, PATHS))


class Member:
    """A membership whose streams stop at once, with the processed offsets so far."""

    def __init__(self, connect: str, options: TreeOptions = PATIENT, *, streams_count: int = 1) -> None:
        self.events: list[Event] = []
        self.held: dict[TopicPartition, Start] = {}
        self.asked: dict[TopicPartition, int] = {}
        self.threads: set[str] = set()
        self.membership = TreeMembership(connect, "jobs", options)
        self.membership.join(reading(t=streams_count), self._on_events)

    def _on_events(self, events: Sequence[Event]) -> None:
        self.threads.add(threading.current_thread().name)
        for event in events:
            match event:
                case Start(partition):
                    self.held[partition] = event
                case Revoke(partition, claim):
                    self.membership.on_stopped(partition, claim, self.asked.get(partition, self.held[partition].offset))
                case Released(partition) | Lost(partition):
                    del self.held[partition]
                case _:
                    pass
            self.events.append(event)

    def heard(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def wait_for(self, kind: type[Event], count: int = 1) -> Event:
        return eventually(lambda: self.heard(kind), lambda heard: len(heard) >= count)[count - 1]

    def owns(self, count: int) -> bool:
        last = [event for event in list(self.events) if isinstance(event, Start | Revoke | Lost | Settled)]
        return len(self.held) == count and bool(last) and isinstance(last[-1], Settled)

    def may_hand_out(self) -> bool:
        return SystemClock().boottime_ms() < self.membership.hand_out_until_ms


@contextmanager
def closing(*members: Member) -> Iterator[None]:
    try:
        yield
    finally:
        for member in members:
            member.membership.close()


def test_consumers_of_one_process_share_leave_and_succeed_each_other(connect: str) -> None:
    prepare(connect)
    one, two = Member(connect), Member(connect)
    with closing(one, two):
        eventually(lambda: (one.owns(2), two.owns(2)), all)
        assert one.may_hand_out()
        first = min(one.held)
        one.asked = {first: 40}
        one.membership.commit([(first, one.held[first].claim, 30)])
        assert one.wait_for(Committed) == Committed(first, one.held[first].claim, 30)
        one.membership.leave()
        one.wait_for(Left)
        assert isinstance(one.events[-1], Left)
        assert not one.held
        # Its session is over by then, so no member waits for it.
        assert len(group_at(connect).consumers) == 1
        eventually(lambda: two.owns(4))
        assert two.held[first].offset == 40
        assert not one.may_hand_out()
        assert one.threads == {f"ottla-consumer-{one.membership.consumer_id}"}


def test_ten_consumers_of_one_process_share_ten_partitions(connect: str) -> None:
    prepare(connect, 10)
    members = [Member(connect) for _ in range(10)]
    with closing(*members):
        eventually(lambda: [member.owns(1) for member in members], all)
        owned = [partition for member in members for partition in member.held]
        assert sorted(owned) == [TopicPartition("t", number) for number in range(10)]


def test_close_without_leaving_loses_everything_and_frees_it_at_once(connect: str) -> None:
    prepare(connect)
    one = Member(connect, LONG_SESSION)
    eventually(lambda: one.owns(4))
    one.membership.close()
    assert len(one.heard(Lost)) == 4
    assert not one.heard(Left)
    assert not one.may_hand_out()
    assert group_at(connect).owners == {}
    # Later calls do nothing.
    one.membership.commit([(T0, one.heard(Start)[0].claim, 1)])  # type: ignore[union-attr]
    one.membership.leave()
    one.membership.close()


def test_fault_in_a_callback_ends_the_membership_after_all_is_lost(
    connect: str, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(connect)
    one = Member(connect)
    with closing(one):
        eventually(lambda: one.owns(4))
        one.membership.commit([(T0,)])  # type: ignore[list-item]
        failed = one.wait_for(Failed)
        assert isinstance(failed, Failed)
        assert "TypeError" in str(failed.error)
        assert len(one.heard(Lost)) == 4
        assert not one.may_hand_out()
        assert "consumer.bug" in caplog.text


def test_thread_that_gets_no_loop_reports_it(connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loop(main: Coroutine[object, object, object]) -> None:
        main.close()
        raise OSError(24, "too many open files")

    monkeypatch.setattr("ottla.client.membership.tree.membership.run", no_loop)
    one = Member(connect)
    failed = one.wait_for(Failed)
    assert isinstance(failed, Failed)
    assert "too many open files" in str(failed.error)
    one.membership.close()


def test_close_before_a_join_does_nothing(connect: str) -> None:
    TreeMembership(connect, "jobs").close()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_failed_first_connection_ends_the_membership_in_bounded_time_with_a_reason(nobody: str) -> None:
    member = Member(nobody, TreeOptions(connection_timeout_ms=300))
    with closing(member):
        (failed,) = [member.wait_for(Failed)]
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, ZooKeeperUnreachable)
        assert "within 300 ms" in str(failed.error)
        member.membership.leave()
    assert member.events == [failed]


def test_leave_during_the_connection_ends_the_membership(nobody: str) -> None:
    member = Member(nobody)
    with closing(member):
        member.membership.leave()
        member.wait_for(Left)
    assert member.events == [Left()]


def test_close_while_it_connects_returns(nobody: str) -> None:
    member = Member(nobody)
    member.membership.close()
    assert member.events == []


def test_consumer_without_the_credentials_of_the_cluster_gets_an_error(zookeeper: RunningZooKeeper) -> None:
    connect = f"{zookeeper.connect}/closed"
    prepare(connect, digest="ottla:secret")
    stranger = Member(connect)
    with closing(stranger):
        failed = stranger.wait_for(Failed)
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, ZooKeeperRefused)
        assert stranger.events == [failed]
    security = client_security({"zookeeper.digest": "ottla:secret"})
    one = Member(connect, TreeOptions(connection_timeout_ms=60_000, security=security))
    with closing(one):
        eventually(lambda: one.owns(4))


@pytest.mark.parametrize("connect_string", ["", "host:x", "zk1/a,zk2", "a b"])
def test_invalid_connect_string_is_refused_at_once(connect_string: str) -> None:
    with pytest.raises(BadConnectString):
        TreeMembership(connect_string, "jobs")


def test_group_that_is_no_path_segment_is_refused_at_once() -> None:
    with pytest.raises(BadGroupName):
        TreeMembership("localhost", "a/b")


def test_invalid_options_are_refused_and_the_password_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="session_timeout_ms"):
        TreeOptions(session_timeout_ms=0)
    with pytest.raises(ConfigError, match="user:password"):
        client_security({"zookeeper.digest": "no-colon"})
    assert "secret" not in repr(TreeOptions(security=client_security({"zookeeper.digest": "ottla:secret"})))


def test_ids_of_consumers_are_unique_and_name_the_process() -> None:
    ids = {new_consumer_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(f"-{os.getpid()}-" in each and len(each) <= 100 for each in ids)


def test_restart_of_zookeeper_moves_nothing_and_pending_requests_are_sent(server: RunningZooKeeper) -> None:
    prepare(server.connect)
    one = Member(server.connect, LONG_SESSION)
    with closing(one):
        eventually(lambda: one.owns(4))
        claims = {partition: start.claim for partition, start in one.held.items()}
        server.pause()
        # Sent, and never answered: its outcome is unknown.
        one.membership.commit([(T0, claims[T0], 7)])
        server.kill()
        one.membership.commit([(TopicPartition("t", 1), claims[TopicPartition("t", 1)], 8)])
        server.start()
        eventually(lambda: len(one.heard(Committed)) >= 2)
        assert {partition: start.claim for partition, start in one.held.items()} == claims
        assert not one.heard(Lost)
        eventually(lambda: one.may_hand_out())
        offsets = group_at(server.connect).offsets
        assert [offsets[TopicPartition("t", number)].content.offset for number in (0, 1)] == [7, 8]


def test_nothing_is_handed_out_during_a_long_outage_of_zookeeper_and_it_reconnects(server: RunningZooKeeper) -> None:
    prepare(server.connect)
    one = Member(server.connect, SHORT_SESSION)
    with closing(one):
        eventually(lambda: one.owns(4))
        server.kill()
        eventually(lambda: not one.may_hand_out())
        server.start()
        eventually(lambda: one.may_hand_out() and one.owns(4))


@pytest.mark.parametrize("is_frozen", [True, False], ids=["frozen", "gone"])
def test_close_returns_in_bounded_time_when_zookeeper_does_not_answer(
    server: RunningZooKeeper, is_frozen: bool
) -> None:
    prepare(server.connect)
    one = Member(server.connect, LONG_SESSION)
    eventually(lambda: one.owns(4))
    if is_frozen:
        server.pause()
    else:
        server.kill()
    one.membership.leave()
    closing_thread = threading.Thread(target=one.membership.close)
    closing_thread.start()
    # Its session would last for a minute.
    closing_thread.join(30)
    assert not closing_thread.is_alive()
    assert len(one.heard(Lost)) == 4
    if is_frozen:
        server.resume()


def test_consumer_that_was_paused_beyond_its_session_hands_out_nothing_on_resume(connect: str) -> None:
    prepare(connect)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.paused_member", connect, "2000"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        pause_process(process)
        eventually(lambda: group_at(connect).owners, lambda owners: not owners)
        other = Member(connect)
        with closing(other):
            eventually(lambda: other.owns(4))
            process.send_signal(signal.SIGCONT)
            assert process.stdout.readline() == "may not hand out\n"
            assert process.stdout.readline() == "lost\n"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()


async def test_consumer_whose_session_an_operator_ends_claims_again_in_the_next_one(connect: str) -> None:
    home = ZooKeeperBackend(connect, session_timeout_ms=6_000, connection_timeout_ms=60_000)
    onlooker, keeper = await home.connect(), await ZooKeeperKeeper.open(home)
    try:
        await layout.lay_out(onlooker)
        await make_topic(onlooker, "t", 4)
        member = LoopMember(keeper, "a", reading(t=1))
        await until(lambda: member.is_settled)
        former = dict(member.held)
        member.commit(dict.fromkeys(former, 5))
        await until(lambda: len(member.heard(Committed)) == 4)
        member.asked = dict.fromkeys(former, 9)
        credentials = keeper.credentials
        assert credentials is not None
        await home.end_session(credentials)
        await until(lambda: member.is_settled and member.held.keys() == former.keys() and member.held != former)
        assert [event.claim for event in member.heard(Lost)] == [start.claim for start in former.values()]
        assert member.hand_outs_at_losses == [0] * 4
        assert {start.offset for start in member.held.values()} == {5}
        member.member.stop()
    finally:
        await keeper.close()
        await onlooker.close()


def test_process_with_an_unclosed_consumer_ends(connect: str) -> None:
    prepare(connect)
    program = f"""
import threading
from ottla.client.membership.tree.membership import TreeMembership
from ottla.client.groups.subscription import Subscription
owns = threading.Event()
TreeMembership({connect!r}, "jobs").join(Subscription({{"t": 1}}), lambda events: owns.set())
owns.wait()
print("owns")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert (ended.stdout, ended.stderr) == ("owns\n", "")


def register_brokers(connect: str, look: Callable[[], None], *listeners: tuple[BrokerListener, ...]) -> None:
    """Call `look` while brokers 1, 2, ... are registered with these listeners."""

    async def work(tree: Tree) -> None:
        await layout.lay_out(tree)
        await tree.create(layout.CLUSTER_ID, b'{"version":1,"id":"AAAAAAAAAAAAAAAAAAAAAQ"}')
        registry = BrokerRegistry(tree)
        for number, each in enumerate(listeners, start=1):
            await registry.register(BrokerRegistration(NodeId(number), each), 1)
        await asyncio.get_running_loop().run_in_executor(None, look)

    in_tree(connect, work)


def test_addresses_of_live_brokers_are_those_with_a_supported_listener(connect: str) -> None:
    found: list[str] = []
    register_brokers(
        connect,
        lambda: found.extend(brokers_of_tree(connect)),
        (BrokerListener("TLS", "SSL", "one", 9093), BrokerListener("PLAINTEXT", "PLAINTEXT", "one", 9092)),
        (BrokerListener("TLS", "SSL", "two", 9093),),
        (BrokerListener("PLAINTEXT", "PLAINTEXT", "::1", 9092),),
    )
    assert found == ["one:9092", "[::1]:9092"]


def test_missing_brokers_are_distinguished_from_a_missing_cluster(connect: str) -> None:
    with pytest.raises(NoBrokersInTree, match="there is no cluster"):
        brokers_of_tree(connect)

    def look() -> None:
        with pytest.raises(NoBrokersInTree, match="none is registered"):
            brokers_of_tree(connect)

    register_brokers(connect, look)


def test_zookeeper_that_does_not_answer_is_named(nobody: str) -> None:
    with pytest.raises(ZooKeeperUnreachable, match=nobody):
        brokers_of_tree(nobody, timeout_ms=300)
