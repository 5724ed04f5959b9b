"""Features of ZooKeeper alone: addresses, credentials, access lists, sessions that others end."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from ottla.coordination import layout
from ottla.coordination.tree import (
    AccessDenied,
    CreateNode,
    NotEmpty,
    SessionLost,
    SessionState,
)
from ottla.coordination.zookeeper.access import (
    BadConnectString,
    DigestCredentials,
    SessionCredentials,
    ZooKeeperRefused,
    ZooKeeperUnreachable,
)
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.coordination.zookeeper.protection import (
    TreeUnprotected,
    protect_tree,
    require_protection,
    unprotected_paths,
)
from ottla.coordination.zookeeper.security import ZooKeeperSecurity
from ottla.coordination.zookeeper.session import ZooKeeperSession
from ottla.runtime.clock import SystemClock
from ottla.testing.zookeeper import RunningZooKeeper
from tests.contract.tree_backends import until

OTTLA = DigestCredentials("ottla", "secret")


async def session_of(connect: str, *, digest: DigestCredentials | None = None) -> ZooKeeperSession:
    return await ZooKeeperBackend(connect, security=ZooKeeperSecurity(digest)).connect()


async def test_missing_chroot_is_created_also_by_several_at_once(connect: str) -> None:
    sessions = await asyncio.gather(*(session_of(f"{connect}/deeper/still") for _ in range(4)))
    await sessions[0].create("/a", b"1")
    await sessions[1].sync()
    assert (await sessions[1].get("/a")).data == b"1"
    assert await sessions[2].children("/") == ["a"]
    above = await session_of(connect)
    assert await above.children("/deeper") == ["still"]
    for session in (*sessions, above):
        await session.close()


async def test_chroots_are_separate_trees(connect: str) -> None:
    one, two = await session_of(f"{connect}/one"), await session_of(f"{connect}/two")
    await one.create("/a")
    assert await two.exists("/a") is None
    await asyncio.gather(one.close(), two.close())


async def test_root_of_a_tree_cannot_be_deleted(connect: str) -> None:
    session = await session_of(connect)
    with pytest.raises(NotEmpty):
        await session.delete("/")
    await session.close()


async def test_server_that_is_down_is_skipped(zookeeper: RunningZooKeeper, connect: str) -> None:
    _, _, chroot = connect.partition("/")
    for _ in range(3):  # the order of the servers is random
        session = await session_of(f"127.0.0.1:1,{zookeeper.connect},127.0.0.1:2/{chroot}")
        assert session.state is SessionState.CONNECTED
        await session.close()


async def test_address_without_a_listener_is_named(tmp_path: Path) -> None:
    home = ZooKeeperBackend("127.0.0.1:1/ottla", connection_timeout_ms=300)
    with pytest.raises(ZooKeeperUnreachable, match=r"at 127\.0\.0\.1:1/ottla within 300 ms: 127\.0\.0\.1:1: .*refused"):
        await home.connect()
    with pytest.raises(ZooKeeperUnreachable):
        await home.end_session(SessionCredentials(7, b"x" * 16))


async def test_host_without_an_address_is_named() -> None:
    home = ZooKeeperBackend("no-such-host.invalid:2181", connection_timeout_ms=300)
    with pytest.raises(ZooKeeperUnreachable, match=r"no-such-host\.invalid:2181"):
        await home.connect()


def test_connect_string_is_checked_at_once() -> None:
    with pytest.raises(BadConnectString):
        ZooKeeperBackend("zk1:port")


async def test_every_node_belongs_to_the_credentials_alone(zookeeper: RunningZooKeeper, connect: str) -> None:
    session = await session_of(connect, digest=OTTLA)
    await session.multi([CreateNode("/a"), CreateNode("/a/b"), CreateNode("/a/e", ephemeral=True)])
    chroot = connect.removeprefix(zookeeper.connect)
    client = KazooClient(zookeeper.connect, auth_data=[("digest", "ottla:secret")])
    stranger = KazooClient(zookeeper.connect)
    with closing(client), closing(stranger):
        client.start()
        stranger.start()
        for path in (chroot, f"{chroot}/a", f"{chroot}/a/b", f"{chroot}/a/e"):
            (access,), _ = client.get_acls(path)
            assert access.acl_list == ["ALL"]
            assert access.id.scheme == "digest"
            assert access.id.id.startswith("ottla:")
            with pytest.raises(NoAuthError):
                stranger.get(path)
        client.stop()
        stranger.stop()
    await session.close()


@pytest.mark.parametrize(
    ("digest", "who"), [(None, "anyone"), (DigestCredentials("ottla", "wrong"), "the user 'ottla'")]
)
async def test_strangers_are_refused_with_a_reason(connect: str, digest: DigestCredentials | None, who: str) -> None:
    owner = await session_of(connect, digest=OTTLA)
    with pytest.raises(ZooKeeperRefused, match=f"/ is closed to {who}") as failure:
        await session_of(connect, digest=digest)
    assert "wrong" not in str(failure.value)
    await owner.close()


async def test_node_without_access_is_an_error_of_that_node(connect: str) -> None:
    anyone = await session_of(connect)
    owner = await session_of(connect, digest=OTTLA)
    await owner.create("/closed", b"")
    for attempt in (anyone.get("/closed"), anyone.get_many(["/", "/closed"]), anyone.set("/closed", b"", 0)):
        with pytest.raises(AccessDenied) as failure:
            await attempt
        assert failure.value.path == "/closed"
        assert failure.value.hint is not None
    await asyncio.gather(anyone.close(), owner.close())


async def test_thousands_of_reads_are_answered_in_order(connect: str) -> None:
    session = await session_of(connect)
    paths = [f"/n{number}" for number in range(3_000)]
    for start in range(0, len(paths), 1_000):
        await session.multi([CreateNode(path, path.encode()) for path in paths[start : start + 1_000]])
    asked = [*reversed(paths), "/missing", *paths]
    read = await session.get_many(asked)
    assert [None if node is None else node.data.decode() for node in read] == [
        None if path == "/missing" else path for path in asked
    ]
    single = await asyncio.gather(*(session.get(path) for path in paths))
    assert [node.data.decode() for node in single] == paths
    await session.close()


async def test_former_session_is_ended_at_once_with_its_key(connect: str) -> None:
    home = ZooKeeperBackend(connect, session_timeout_ms=20_000)
    former, other = await home.connect(), await home.connect()
    heard: list[SessionState] = []
    watched: list[None] = []
    former.add_session_listener(heard.append)
    await former.create("/alive", ephemeral=True)
    await former.exists("/never", watch=lambda: watched.append(None))
    lease = former.lease
    assert lease.until_ms > SystemClock().boottime_ms()
    await home.end_session(former.credentials)
    await other.sync()
    assert await other.exists("/alive") is None
    await until(lambda: SessionState.LOST in heard and bool(watched))
    assert former.state is SessionState.LOST
    assert lease.until_ms == 0
    for attempt in (former.get("/"), former.create("/more"), former.sync(), former.get_many(["/"])):
        with pytest.raises(SessionLost):
            await attempt
    await home.end_session(former.credentials)  # again is no error
    await asyncio.gather(former.close(), other.close())
    assert heard.count(SessionState.LOST) == 1


async def test_wrong_key_ends_no_session(connect: str) -> None:
    home = ZooKeeperBackend(connect)
    session = await home.connect()
    await session.create("/alive", ephemeral=True)
    await home.end_session(SessionCredentials(session.session_id, b"x" * 16))
    assert await session.exists("/alive") is not None
    assert session.state is SessionState.CONNECTED
    await session.close()


async def test_lease_is_two_thirds_of_the_granted_session_time(connect: str) -> None:
    session = await ZooKeeperBackend(connect, session_timeout_ms=700, connection_timeout_ms=60_000).connect()
    assert session.timeout_ms == 1_000  # the shortest that these servers grant
    now_ms = SystemClock().boottime_ms()
    assert session.lease.until_ms <= now_ms + 667
    first = session.lease.until_ms
    await until(lambda: session.lease.until_ms > first)  # without a writer
    await session.close()


async def test_lease_ends_before_the_nodes_when_a_session_is_closed(connect: str) -> None:
    closing_session, observer = await session_of(connect), await session_of(connect)
    await closing_session.create("/alive", ephemeral=True)
    leases: list[int] = []
    await observer.exists("/alive", watch=lambda: leases.append(closing_session.lease.until_ms))
    await closing_session.close()
    await until(lambda: leases == [0])
    await observer.close()


BROKERS = ZooKeeperSecurity(OTTLA, consumers=DigestCredentials("readers", "theirs"))
CONSUMERS = ZooKeeperSecurity(DigestCredentials("readers", "theirs"))


async def test_consumers_change_only_what_is_theirs_and_the_brokers_can_use_it(connect: str) -> None:
    broker = await ZooKeeperBackend(connect, security=BROKERS).connect()
    await layout.lay_out(broker)
    await broker.multi([CreateNode(layout.CLUSTER_ID), CreateNode(f"{layout.TOPICS}/orders")])
    consumer = await ZooKeeperBackend(connect, security=CONSUMERS).connect()
    assert await consumer.children(layout.TOPICS) == ["orders"]
    await consumer.get(layout.CLUSTER_ID)
    await consumer.multi([CreateNode("/consumers/jobs"), CreateNode("/consumers/jobs/ids", ephemeral=True)])
    closed = [
        consumer.get(layout.USER_CONFIGS),
        consumer.children(layout.ACLS),
        consumer.set(f"{layout.TOPICS}/orders", b"theirs", 0),
        consumer.create(f"{layout.TOPICS}/more"),
        consumer.create(f"{layout.BROKER_IDS}/7"),
        consumer.delete(layout.CHANGES),
        consumer.protect(layout.CONSUMERS),
    ]
    for attempt in closed:
        with pytest.raises(AccessDenied):
            await attempt
    assert (await broker.get("/consumers/jobs")).data == b""
    await consumer.close()
    await broker.delete("/consumers/jobs")
    assert await unprotected_paths(broker) == []
    await broker.close()


async def test_tree_that_was_open_is_closed_with_all_that_is_in_it(connect: str) -> None:
    anyone = await session_of(connect)
    await layout.lay_out(anyone)
    await anyone.multi([CreateNode("/config/users/alice", b"keys"), CreateNode("/consumers/jobs")])
    broker = await ZooKeeperBackend(connect, security=BROKERS).connect()
    with pytest.raises(TreeUnprotected, match=r"/, /changes, /cluster and .* more are open") as failure:
        await require_protection(broker)
    assert "ottla cluster protect" in (failure.value.hint or "")
    assert await protect_tree(broker) > 10
    await require_protection(broker)
    for path in ("/config/users/alice", "/consumers/jobs", "/"):
        with pytest.raises(AccessDenied):
            await anyone.get(path)
    consumer = await ZooKeeperBackend(connect, security=CONSUMERS).connect()
    await consumer.delete("/consumers/jobs")
    await asyncio.gather(anyone.close(), broker.close(), consumer.close())


async def test_tree_of_a_stolen_digest_is_given_to_another(zookeeper: RunningZooKeeper, connect: str) -> None:
    """The order of docs/security.md: opened with the former digest, closed with the new one."""
    former = await ZooKeeperBackend(connect, security=BROKERS).connect()
    await layout.lay_out(former)
    await former.multi([CreateNode("/config/users/alice", b"keys"), CreateNode("/consumers/jobs")])
    await former.close()
    chroot = connect.removeprefix(zookeeper.connect)
    opener = KazooClient(zookeeper.connect, auth_data=[("digest", OTTLA.credential)])
    with closing(opener):
        opener.start()
        # As `setAcl -R` does.
        paths = [chroot]
        for path in paths:
            opener.set_acls(path, OPEN_ACL_UNSAFE)
            paths += [f"{path}/{name}" for name in opener.get_children(path)]
        opener.stop()
    renewed = ZooKeeperSecurity(
        DigestCredentials("ottla", "another"), consumers=DigestCredentials("readers", "another")
    )
    broker = await ZooKeeperBackend(connect, security=renewed).connect()
    assert await protect_tree(broker) > 10
    await require_protection(broker)
    assert (await broker.get("/config/users/alice")).data == b"keys"
    await broker.close()
    for stolen in (BROKERS, CONSUMERS):
        with pytest.raises(ZooKeeperRefused):
            await ZooKeeperBackend(connect, security=stolen).connect()
