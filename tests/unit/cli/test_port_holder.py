"""What `ottla serve` says of the program that has its port."""

from __future__ import annotations

from ottla.cli.port_holder import holder_of
from ottla.client.wire.address import Address
from ottla.client.wire.errors import ConnectionLost
from ottla.client.wire.transport import Transport
from tests.unit.client.fake_cluster import FakeCluster


def test_broker_that_has_the_port_is_named() -> None:
    fake = FakeCluster()
    address = fake.brokers[1].address
    assert holder_of(address.host, address.port, fake.dial) == (
        f"a Kafka broker answers at {address}: cluster fake, node id 1"
    )


def test_program_that_is_no_broker_is_reported_as_such() -> None:
    def hang_up(address: Address) -> Transport:
        raise ConnectionLost("it closed the connection")

    assert holder_of("0.0.0.0", 9092, hang_up) == (
        "what listens at 127.0.0.1:9092 does not answer as a Kafka broker does (without TLS and logins)"
    )
