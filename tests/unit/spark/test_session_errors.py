"""What a session that does not start says of the port or the address that it cannot have."""

from __future__ import annotations

import pytest

from ottla.spark.local_session import address_refused

START = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: java.net.BindException: "
TRACE = "\n\tat java.base/sun.nio.ch.Net.bind0(Native Method)\n\tat java.base/sun.nio.ch.Net.bind(Net.java:555)"


@pytest.mark.parametrize(
    ("service", "setting"),
    [
        ("sparkDriver", "spark.driver.port"),
        ("SparkUI", "spark.ui.port"),
        ("org.apache.spark.network.netty.NettyBlockTransferService", "spark.blockManager.port"),
        ("Other", "the port of Other"),
    ],
)
def test_port_that_another_program_has_is_named_with_its_setting(service: str, setting: str) -> None:
    message = (
        f"{START}bind(..) failed with error(-98): Address already in use: Service '{service}' failed after 1 retries "
        f"(starting from 7077)! Consider explicitly setting the appropriate port for the service '{service}' (for "
        f"example spark.ui.port for SparkUI) to an available port or increasing spark.port.maxRetries.{TRACE}"
    )
    error = address_refused(message)
    assert error is not None
    assert str(error) == f"Spark cannot listen on port 7077 ({setting}): Address already in use"
    assert error.hint == (
        f"another program listens there: set {setting} to another port, or leave it out for a free one"
    )


def test_port_that_the_system_refuses_is_reported_without_another_program() -> None:
    message = (
        f"{START}bind(..) failed with error(-13): Permission denied: Service 'sparkDriver' failed after 16 retries "
        f"(starting from 80)! Consider explicitly setting the appropriate port.{TRACE}"
    )
    error = address_refused(message)
    assert error is not None
    assert str(error) == "Spark cannot listen on port 80 (spark.driver.port): Permission denied"
    assert error.hint == "set spark.driver.port to another port, or leave it out for a free one"


@pytest.mark.parametrize("cannot", ["Cannot", "Can't"])
@pytest.mark.parametrize("port", ["on a random free port", "starting from 7077"])
def test_address_that_the_machine_does_not_have_is_reported(port: str, cannot: str) -> None:
    message = (
        f"{START}{cannot} assign requested address: Service 'sparkDriver' failed after 16 retries ({port})! Consider "
        f"explicitly setting the appropriate binding address for the service 'sparkDriver'.{TRACE}"
    )
    error = address_refused(message)
    assert error is not None
    assert str(error) == f"Spark cannot listen at its address: {cannot} assign requested address"
    assert error.hint is not None
    assert error.hint.startswith("set spark.driver.bindAddress")


def test_other_errors_are_left_as_they_are() -> None:
    assert address_refused("java.lang.IllegalArgumentException: spark.driver.memory is wrong") is None
