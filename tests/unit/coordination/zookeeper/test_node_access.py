"""Who may do what with the nodes of a tree."""

from __future__ import annotations

import pytest

from ottla.coordination.zookeeper.access import DigestCredentials
from ottla.coordination.zookeeper.node_access import (
    CREATOR_ONLY,
    OPEN,
    AccessEntry,
    Rights,
    is_unprotected,
    rights_of_consumers,
    shared_access,
)

BROKERS = DigestCredentials("brokers", "one")
CONSUMERS = DigestCredentials("consumers", "two")


@pytest.mark.parametrize(
    "path",
    [
        "/changes",
        "/cluster",
        "/cluster/login_secret",
        "/brokers",
        "/brokers/generations/1",
        "/brokers/topics/orders/id/partitions/0/state",
        "/config/topics/orders",
        "/config/users",
        "/config/users/alice",
        "/acls/literal/topic/orders",
        "/admin/reassign",
        "/latest_producer_id_block",
        "/consumers-of-another",
        "/adoption",
    ],
)
def test_nodes_of_brokers_are_closed_to_consumers(path: str) -> None:
    assert not rights_of_consumers(path)
    assert shared_access(BROKERS, CONSUMERS)(path) == (AccessEntry(Rights.ALL, "digest", BROKERS.identity),)


@pytest.mark.parametrize("path", ["/", "/cluster/id", "/brokers/ids", "/brokers/ids/1", "/brokers/topics/orders"])
def test_consumers_only_read_the_brokers_and_the_topics(path: str) -> None:
    assert shared_access(BROKERS, CONSUMERS)(path) == (
        AccessEntry(Rights.ALL, "digest", BROKERS.identity),
        AccessEntry(Rights.READ, "digest", CONSUMERS.identity),
    )


def test_consumers_change_what_is_below_their_own_path() -> None:
    assert rights_of_consumers("/consumers/jobs/owners/t/0") == Rights.ALL
    # The node itself stays, and its ACL is the brokers'.
    assert rights_of_consumers("/consumers") == Rights.READ | Rights.CREATE | Rights.DELETE


def test_identity_is_that_of_zookeepers_own_tools() -> None:
    """`super:test`, as ZooKeeper's documentation has it."""
    assert DigestCredentials("super", "test").identity == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


@pytest.mark.parametrize("rights", [Rights.WRITE, Rights.CREATE, Rights.DELETE, Rights.ADMIN, Rights.ALL])
def test_node_that_the_world_may_change_is_unprotected(rights: Rights) -> None:
    assert is_unprotected("/changes", (*CREATOR_ONLY, AccessEntry(rights, "world", "anyone")))


@pytest.mark.parametrize("path", ["/config/users", "/config/users/alice", "/cluster/login_secret"])
def test_node_with_secrets_that_the_world_may_read_is_unprotected(path: str) -> None:
    readable = (*CREATOR_ONLY, AccessEntry(Rights.READ, "world", "anyone"))
    assert is_unprotected(path, readable)
    assert not is_unprotected("/brokers/ids/1", readable)


def test_protected_node_is_not_reported() -> None:
    assert not is_unprotected("/config/users", shared_access(BROKERS, CONSUMERS)("/config/users"))
    assert is_unprotected("/changes", OPEN)
