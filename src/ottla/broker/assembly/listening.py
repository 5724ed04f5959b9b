"""The first step: the addresses are bound, so that a taken port is reported before a long recovery."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.net.advertising import Advertising
from ottla.broker.net.listener import bind


class Listening(NamedTuple):
    """The bound sockets, one for each listener of the options, and the addresses that clients get."""

    sockets: Sequence[socket.socket]
    addresses: Sequence[tuple[str, int]]
    advertising: Advertising


def bind_listeners(start: BrokerStart) -> Listening:
    """Nothing is changed on the disk yet.

    A member of a cluster may wait for ZooKeeper: its port refuses clients until then, so they try other brokers.
    """
    sockets = [bind(each.host, each.port, listens=start.is_sole) for each in start.options.listeners]
    for each in sockets:
        start.closing.callback(each.close)
    addresses = [each.getsockname()[:2] for each in sockets]
    own_id = start.node_id if start.is_sole else None
    return Listening(sockets, addresses, Advertising(start.options, addresses, own_id=own_id))
