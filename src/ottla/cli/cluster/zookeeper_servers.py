"""Asks each server of a ZooKeeper how it is."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.cluster.health import ZooKeeperHealth, zookeeper_health
from ottla.coordination.zookeeper.connect_string import ConnectString
from ottla.testing.four_letter_words import ask_zookeeper


def servers_health(where: ConnectString, timeout_s: float) -> Sequence[ZooKeeperHealth]:
    """`timeout_s` is one server's: one that hangs does not hide the others."""
    return [
        zookeeper_health(address, ask_zookeeper(host, port, "srvr", timeout_s=timeout_s))
        for (host, port), address in zip(where.servers, where.addresses, strict=True)
    ]
