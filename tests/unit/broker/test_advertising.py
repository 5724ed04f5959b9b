"""The address that a client is advertised: the configured one, else the way by which it came."""

from __future__ import annotations

import pytest

from ottla.broker.advertising import Advertising
from ottla.model.listener import Listener
from ottla.model.serve_options import ServeOptions
from ottla.model.settings import BrokerSettings

INSIDE, OUTSIDE = Listener("PLAINTEXT", "::", 0), Listener("OUTSIDE", "::", 0)
ADDRESSES = [("::", 9092), ("::", 9093)]


def advertising(*advertised: Listener) -> Advertising:
    options = ServeOptions(
        settings=BrokerSettings.of({}), data_dir="d", listeners=(INSIDE, OUTSIDE), advertised=advertised
    )
    return Advertising(options, ADDRESSES)


@pytest.mark.parametrize(
    ("reached", "advertised"),
    [
        (("10.0.0.7", 9092), ("10.0.0.7", 9092)),
        (("2001:db8::7", 9092), ("2001:db8::7", 9092)),
        (("::ffff:10.0.0.7", 9092), ("10.0.0.7", 9092)),
    ],
)
def test_client_gets_the_address_that_it_connected_to(reached: tuple[str, int], advertised: tuple[str, int]) -> None:
    assert advertising().address_for(reached) == advertised


def test_client_gets_the_configured_address_of_the_listener_that_it_reached() -> None:
    advertised = advertising(Listener("OUTSIDE", "broker.example", 19_093))
    assert advertised.address_for(("10.0.0.7", 9093)) == ("broker.example", 19_093)
    assert advertised.address_for(("10.0.0.7", 9092)) == ("10.0.0.7", 9092)
