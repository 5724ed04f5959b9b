"""Which peers there are, in the order of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from bench.peers import apache_kafka, ottla_processes
from bench.peers.apache_kafka import start_apache_kafka
from bench.peers.ottla import start_ottla
from bench.peers.ottla_processes import start_ottla_processes
from bench.peers.peer import StartPeer, StartPeerWith

APACHE_KAFKA: Final = apache_kafka.NAME
OTTLA_OS: Final = "ottla-os"
OTTLA_ACK: Final = "ottla-ack"
OTTLA_2P: Final = ottla_processes.NAME

PEERS: Final[Mapping[str, StartPeer]] = {
    APACHE_KAFKA: start_apache_kafka,
    OTTLA_OS: partial(start_ottla, "os"),
    OTTLA_ACK: partial(start_ottla, "ack"),
}

# The peers of the studies, which give settings of their own; one form of Ottla, the default.
PEERS_WITH_SETTINGS: Final[Mapping[str, StartPeerWith]] = {
    APACHE_KAFKA: start_apache_kafka,
    OTTLA_ACK: partial(start_ottla, "ack"),
    OTTLA_OS: partial(start_ottla, "os"),
    OTTLA_2P: start_ottla_processes,
}
