from __future__ import annotations

from dataclasses import fields

import pytest

import ottla
import ottla.aio
from ottla.client.streams.settings import ConnectorArguments, StreamSettings, stream_settings
from ottla.client.wire.options import ClientOptions
from ottla.model.errors import ConfigError


def test_each_setting_of_streams_is_an_argument_of_a_connector() -> None:
    assert set(ConnectorArguments.__annotations__) == {field.name for field in fields(StreamSettings)}


def test_connector_without_arguments_has_the_defaults() -> None:
    assert stream_settings({}) == StreamSettings()


@pytest.mark.parametrize("connector", [ottla.ConsumerConnector, ottla.aio.ConsumerConnector])
def test_connector_refuses_a_setting_that_does_not_exist_or_cannot_be(connector: type) -> None:
    with pytest.raises(TypeError, match="auto_offset"):
        connector("localhost:9092", group="g", auto_offset="latest")
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        connector("localhost:9092", group="g", auto_offset_reset="first")


def test_the_time_of_a_request_is_that_of_every_connection() -> None:
    assert StreamSettings(request_timeout_ms=500).client_options().request_timeout_ms == 500
    assert StreamSettings().client_options().request_timeout_ms == ClientOptions().request_timeout_ms
