"""Producers and members in other languages for the history checker; raises the reason where one is unavailable."""

from __future__ import annotations

from tests.history.clients import MemberKind, ProducerKind, ReaderKind
from tests.interop.clients.go_client import go_program
from tests.interop.clients.java_client import VERSION, java_program


def java_producer() -> ProducerKind:
    """Raises PeerUnavailable or KafkaUnavailable."""
    return ProducerKind("java", tuple(java_program(VERSION, "Sending")))


def java_member(protocol: str) -> MemberKind:
    """Raises PeerUnavailable or KafkaUnavailable."""
    return MemberKind("java", tuple(java_program(VERSION, "Consuming")), protocol)


def waiting_java_client() -> tuple[str, ...]:
    """The command; its arguments are those of `waiting_clients` after the library.  Raises as `java_producer`."""
    return tuple(java_program(VERSION, "Waiting"))


def java_transactions() -> tuple[MemberKind, ReaderKind]:
    """A worker and a reader of `tests.transactions_history`.  Raises as `java_producer`."""
    program = tuple(java_program(VERSION, "Transacting"))
    return MemberKind("transactions-java", (*program, "worker"), "range"), ReaderKind("java", (*program, "reader"))


def franz_go_producer() -> ProducerKind:
    """Raises PeerUnavailable."""
    return ProducerKind("franz-go", (*go_program(), "sending"))


def franz_go_member(protocol: str) -> MemberKind:
    """Raises PeerUnavailable."""
    return MemberKind("franz-go", (*go_program(), "consuming"), protocol)
