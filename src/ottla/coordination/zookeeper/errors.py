"""Errors of reaching a ZooKeeper; those of its nodes are in `coordination.tree`."""

from __future__ import annotations

from ottla.coordination.tree import TreeError
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError, OttlaError


class BadConnectString(ConfigError):
    """`zookeeper.connect` cannot be read."""

    hint = "write it as host:port,host:port/chroot, for example zk1:2181,zk2:2181,zk3:2181/ottla"

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"zookeeper.connect {text!r}: {problem}")


class ZooKeeperUnreachable(OttlaError):
    """No server of the connect string gave a session in time."""

    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    hint = "check that ZooKeeper runs, its address (of brokers: zookeeper.connect), and the network between"


class ZooKeeperRefused(OttlaError):
    """A server answered, but refuses these credentials."""

    error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    hint = (
        "all brokers of a cluster need the same ZooKeeper credentials, and the servers must allow the scheme 'digest'"
    )


class OperationRefused(TreeError):
    """ZooKeeper refused an operation for a reason that the tree does not have; the hint names it."""

    about = "was refused by ZooKeeper"
