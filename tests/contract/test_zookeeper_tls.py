"""ZooKeeper over TLS: which servers are trusted, and what the error says of each that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from ottla.coordination.tree import CreateNode, SessionState
from ottla.coordination.zookeeper.access import ZooKeeperDistrusted, ZooKeeperUnreachable
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.coordination.zookeeper.inspection import inspect_tree
from ottla.coordination.zookeeper.security import UNSECURED, ZooKeeperSecurity, client_security
from ottla.coordination.zookeeper.session import ZooKeeperSession
from ottla.model.errors import OttlaError
from ottla.security.issuing import issue
from ottla.testing.zookeeper import RunningZooKeeper, ServerTls
from tests.contract.tree_backends import until
from tests.zookeeper_or_skip import skips_without_zookeeper

# An attempt that cannot succeed takes as long.
FAILS_WITHIN_MS: Final = 1_000
READS_COUNT: Final = 2_000


class Site:
    """A server that demands certificates; its own is for 127.0.0.1 and no other name."""

    def __init__(self, folder: Path) -> None:
        # Keys of trustme are not in PKCS#8, the only form that ZooKeeper reads.
        issued, other = (issue(["127.0.0.1"], datetime.now(UTC)) for _ in range(2))
        self.ca, self.keystore, self.other_ca = (folder / name for name in ("ca.pem", "server.pem", "other.pem"))
        self.ca.write_text(issued.authority)
        self.keystore.write_text(issued.broker)
        self.other_ca.write_text(other.authority)
        self.zookeeper = RunningZooKeeper(tls=ServerTls(self.keystore, self.ca, demands_certificate=True))

    def security(self, **changed: str | None) -> ZooKeeperSecurity:
        settings = self.zookeeper.client_settings
        for name, text in changed.items():
            settings[f"zookeeper.ssl.{name}.location"] = text or ""
            if text is None:
                del settings[f"zookeeper.ssl.{name}.location"]
        return client_security(settings)

    async def session(self, security: ZooKeeperSecurity) -> ZooKeeperSession:
        return await ZooKeeperBackend(f"{self.zookeeper.connect}/ottla", security=security).connect()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with skips_without_zookeeper():
        made = Site(tmp_path_factory.mktemp("tls"))
        with made.zookeeper:
            yield made


async def refusal(connect: str, security: ZooKeeperSecurity) -> OttlaError:
    with pytest.raises((ZooKeeperDistrusted, ZooKeeperUnreachable)) as failure:
        await ZooKeeperBackend(connect, security=security, connection_timeout_ms=FAILS_WITHIN_MS).connect()
    return failure.value


async def test_session_over_tls_answers_thousands_of_requests_and_survives_a_lost_connection(site: Site) -> None:
    session = await site.session(site.security())
    paths = [f"/n{number}" for number in range(READS_COUNT)]
    await session.multi([CreateNode(path, path.encode()) for path in paths])
    # Answers that arrive together are decrypted together: none may wait for the next one.
    found = await asyncio.gather(*(session.get(path) for path in paths))
    assert [node.data for node in found] == [path.encode() for path in paths]
    own_id = session.session_id
    session._client.drop_connection()
    await until(lambda: session.state is SessionState.SUSPENDED)
    await until(lambda: session.state is SessionState.CONNECTED)
    await session.set("/n0", b"later", 0)
    assert session.session_id == own_id
    await session.close()
    seen = await asyncio.to_thread(inspect_tree, f"{site.zookeeper.connect}/ottla", site.security(), 30.0)
    assert seen.cluster_id is None


async def test_server_of_another_ca_is_not_trusted(site: Site) -> None:
    security = site.security(truststore=str(site.other_ca))
    error = await refusal(site.zookeeper.connect, security)
    assert isinstance(error, ZooKeeperDistrusted)
    assert "not signed by a CA of zookeeper.ssl.truststore.location" in str(error)
    assert "no other CA is trusted" in (error.hint or "")
    with pytest.raises(ZooKeeperDistrusted, match="not signed by a CA"):
        await asyncio.to_thread(inspect_tree, site.zookeeper.connect, security, FAILS_WITHIN_MS / 1_000)


async def test_certificate_of_another_host_is_not_trusted(site: Site) -> None:
    error = await refusal(f"localhost:{site.zookeeper.port}", site.security())
    assert isinstance(error, ZooKeeperDistrusted)
    assert "its certificate is for another host than localhost" in str(error)
    assert "subject alternative names" in (error.hint or "")


async def test_server_that_demands_a_certificate_is_named(site: Site) -> None:
    """Its alert may be lost: it closes a connection on which a request is unread."""
    error = await refusal(site.zookeeper.connect, site.security(keystore=None))
    assert "set zookeeper.ssl.keystore.location" in (error.hint or "")


async def test_plain_client_at_a_port_with_tls_gets_a_hint(site: Site) -> None:
    error = await refusal(site.zookeeper.connect, UNSECURED)
    assert isinstance(error, ZooKeeperUnreachable)
    assert "set zookeeper.ssl.client.enable=true" in (error.hint or "")


async def test_tls_at_a_port_without_is_named(site: Site, zookeeper: RunningZooKeeper) -> None:
    error = await refusal(zookeeper.connect, site.security())
    assert "no TLS there" in str(error)
    assert "secureClientPort" in (error.hint or "")


def test_server_answers_commands_over_tls(site: Site) -> None:
    assert "Mode: standalone" in site.zookeeper.ask("srvr")
