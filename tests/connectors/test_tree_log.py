"""ZooKeeper's transaction log has every change, in order, with the sessions that made and ended them."""

from __future__ import annotations

from pathlib import Path

from kazoo.client import KazooClient

from ottla.testing.zookeeper import RunningZooKeeper
from tests.connectors.tree_log import Kind, read_tree_log
from tests.zookeeper_or_skip import skips_without_zookeeper


def test_log_has_all_writes_in_order(tmp_path: Path) -> None:
    with skips_without_zookeeper(), RunningZooKeeper(tmp_path) as zookeeper:
        # The server is down in between, on a busy machine for long.  A server that is starting may take a connection
        # and never answer it; kazoo gives each configured server an equal part of the session's time.
        client = KazooClient(",".join([zookeeper.connect] * 4), timeout=60.0)
        client.start(timeout=60.0)
        session_id = client.client_id[0]
        client.create("/offset", b"0")
        claim = client.transaction()
        claim.create("/owner", b"a", ephemeral=True)
        claim.set_data("/offset", b"1", 0)
        claim.commit()
        refused = client.transaction()
        refused.delete("/owner")
        refused.set_data("/offset", b"2", 0)
        refused.commit()
        client.create("/kept", b"", ephemeral=True)
        client.delete("/kept")
        zookeeper.kill()
        zookeeper.start()
        client.set("/offset", b"3")
        client.stop()
        client.close()
    changes = list(read_tree_log(tmp_path / "data"))
    assert [(each.kind, each.path, each.data, each.session_ended) for each in changes] == [
        (Kind.CREATED, "/offset", b"0", False),
        (Kind.CREATED, "/owner", b"a", False),
        (Kind.WRITTEN, "/offset", b"1", False),
        (Kind.CREATED, "/kept", b"", False),
        (Kind.DELETED, "/kept", b"", False),
        (Kind.WRITTEN, "/offset", b"3", False),
        (Kind.DELETED, "/owner", b"", True),
    ]
    assert {each.session_id for each in changes} == {session_id}
    assert changes[1].zxid == changes[2].zxid, "a multi is one transaction"
    assert [each.zxid for each in changes] == sorted(each.zxid for each in changes)
