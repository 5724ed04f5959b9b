"""Brokers with a listener in plain text and one with TLS, and the certificate that both show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trustme
from tests.peers.free_ports import find_free_ports
from tests.peers.pem_keystore import pem_keystore

from bench.peers.apache_kafka import ApacheKafkaPeer
from bench.peers.names import APACHE_KAFKA, OTTLA_OS
from bench.peers.ottla import HOST, start_ottla
from bench.peers.peer import HOUSEKEEPING, Peer

_SSL: Final = "SSL"


@dataclass(frozen=True, slots=True)
class Keys:
    ca: Path
    keystore: Path

    @classmethod
    def made_in(cls, directory: Path) -> Keys:
        """A new authority, and a certificate of it for this host (ECDSA with P-256)."""
        authority = trustme.CA()
        keys = cls(directory / "ca.pem", directory / "broker.pem")
        keys.ca.write_bytes(authority.cert_pem.bytes())
        keys.keystore.write_bytes(pem_keystore(authority.issue_cert(HOST)))
        return keys

    @property
    def settings(self) -> Mapping[str, str]:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.keystore)}


@dataclass(frozen=True, slots=True)
class TlsPeer:
    """`broker.port` is the listener in plain text."""

    broker: Peer
    tls_port: int


StartTlsPeer = Callable[[Path, Keys], AbstractContextManager[TlsPeer]]


@contextmanager
def _start_apache_kafka(work_dir: Path, keys: Keys) -> Iterator[TlsPeer]:
    properties = HOUSEKEEPING | dict(keys.settings)
    with ApacheKafkaPeer(properties, parent_dir=work_dir, listeners={_SSL: _SSL}) as kafka:
        assert isinstance(kafka, ApacheKafkaPeer)
        yield TlsPeer(kafka, int(kafka.addresses[_SSL].rpartition(":")[2]))


@contextmanager
def _start_ottla(policy: str, work_dir: Path, keys: Keys) -> Iterator[TlsPeer]:
    (tls_port,) = find_free_ports(1, HOST)
    with start_ottla(policy, work_dir, keys.settings, [f"{_SSL}://{HOST}:{tls_port}"]) as broker:
        yield TlsPeer(broker, tls_port)


TLS_PEERS: Final[Mapping[str, StartTlsPeer]] = {
    APACHE_KAFKA: _start_apache_kafka,
    OTTLA_OS: partial(_start_ottla, "os"),
}
