from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import ottla
import ottla.aio
from ottla.client.producing.settings import ProducerArguments, ProducerSettings, acks_of, codec_of
from ottla.client.wire.errors import BadAddress
from ottla.model.errors import ConfigError
from ottla.records.compression import Codec


@pytest.mark.parametrize(("acks", "number"), [("all", -1), (-1, -1), ("-1", -1), (1, 1), ("1", 1), (0, 0), ("0", 0)])
def test_acks_are_as_kafkas_users_write_them(acks: str | int, number: int) -> None:
    assert acks_of(acks) == number


@pytest.mark.parametrize("acks", ["none", 2, True, ""])
def test_other_acks_are_refused(acks: str | int) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        acks_of(acks)


@pytest.mark.parametrize(
    "settings",
    [
        {"linger_ms": -1},
        {"batch_bytes": 0},
        {"batch_count_max": 0},
        {"buffer_bytes": 0},
        {"max_block_ms": float("nan")},
        {"max_request_bytes": "1"},
        {"max_in_flight": 6},
        {"max_in_flight": True},
        {"acks": 1, "enable_idempotence": True},
        {"delivery_timeout_ms": 4, "linger_ms": 5},
        {"compression": Codec.SNAPPY, "compression_level": 1},
        {"compression": Codec.ZSTD, "compression_level": 100},
    ],
)
def test_setting_that_cannot_be_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ProducerSettings(**settings)  # type: ignore[arg-type]


def test_without_all_acks_there_is_no_idempotence_unless_it_is_asked_for() -> None:
    assert ProducerSettings().raw_options().is_idempotent
    assert not ProducerSettings(acks=1).raw_options().is_idempotent
    assert ProducerSettings(acks=1, max_in_flight=20).raw_options().max_in_flight == 20


@pytest.mark.parametrize("producer", [ottla.Producer, ottla.aio.Producer])
def test_producer_with_a_refused_setting_leaves_no_thread_and_no_warning(producer: type) -> None:
    with pytest.raises(ConfigError, match="unknown compression type"):
        producer("localhost:9092", compression="zip")
    with pytest.raises(ConfigError):
        producer("localhost:9092", linger_ms=-1)
    with pytest.raises(ConfigError, match="compression 3 does not exist"):
        producer("localhost:9092", compression=3)
    with pytest.raises(ConfigError, match="value_serializer is a callable"):
        producer("localhost:9092", value_serializer="utf-8")
    with pytest.raises(BadAddress):
        producer("localhost:")


class Table(dict[object, bytes]):
    """A callable that is false while it is empty."""

    def __call__(self, *arguments: object) -> Any:
        return b"called"


@pytest.mark.parametrize("name", ["key_serializer", "value_serializer", "partitioner"])
def test_a_callable_that_is_false_is_code_of_the_user(name: str) -> None:
    table = Table()
    assert not table
    settings: dict[str, Any] = {name: table}
    assert not ProducerSettings(**settings).is_plain


def test_no_compression_may_be_written_as_none() -> None:
    assert codec_of(None) is codec_of("none") is Codec.NONE


def test_each_setting_of_a_producer_is_an_argument_of_its_users() -> None:
    assert list(ProducerArguments.__annotations__) == [field.name for field in fields(ProducerSettings)]


@pytest.mark.parametrize("producer", [ottla.Producer, ottla.aio.Producer])
def test_setting_that_does_not_exist_is_refused(producer: type) -> None:
    with pytest.raises(TypeError, match="linger"):
        producer("localhost:9092", linger=5)
