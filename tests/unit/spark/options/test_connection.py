from __future__ import annotations

import pytest

from ottla.spark.errors import SparkOptionError
from ottla.spark.options.connection import Connection, parse_connection
from ottla.spark.options.option_reader import OptionReader

BASE = {"kafka.bootstrap.servers": "localhost:9092"}


def parse(options: dict[str, str]) -> Connection:
    reader = OptionReader(BASE | options)
    connection = parse_connection(reader)
    reader.refuse_rest()
    return connection


def test_a_call_takes_kafka_s_60_s_unless_a_time_is_given() -> None:
    assert parse({}).client_options.call_timeout_ms == 60_000


def test_a_call_ends_with_the_time_of_a_request_when_only_that_is_given() -> None:
    options = parse({"kafka.request.timeout.ms": "2000"}).client_options
    assert (options.request_timeout_ms, options.call_timeout_ms) == (2_000, 2_000)


def test_a_call_ends_after_its_own_time_when_that_is_given() -> None:
    options = parse({"KAFKA.Request.Timeout.MS": "2000", "kafka.default.api.timeout.ms": "9000"}).client_options
    assert (options.request_timeout_ms, options.call_timeout_ms) == (2_000, 9_000)


def test_a_client_id_reaches_the_brokers() -> None:
    assert parse({"kafka.client.id": "nightly"}).client_options.client_id == "nightly"


def test_harmless_settings_are_accepted() -> None:
    options = {"kafka.Client.DNS.Lookup": "use_all_dns_ips", "kafka.reconnect.backoff.ms": "10"}
    assert parse(options) == Connection("localhost:9092")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kafka.sasl.qop": "auth-conf"}, "sasl.qop is not a security setting"),
        ({"kafka.interceptor.classes": "a.B"}, "'kafka.interceptor.classes' is not offered"),
        ({"kafka.value.deserializer": "a.B"}, "'kafka.value.deserializer' is not offered"),
        ({"kafka.request.timeout.ms": "5"}, "'kafka.request.timeout.ms' is 5"),
    ],
)
def test_what_would_change_results_is_refused_by_name(options: dict[str, str], named: str) -> None:
    with pytest.raises(SparkOptionError) as caught:
        parse(options)
    assert named in str(caught.value)
