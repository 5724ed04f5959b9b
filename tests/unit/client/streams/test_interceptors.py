"""A user's code that sees messages before they are returned, and commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ottla import Consumer
from ottla.client.fetching.messages import Message
from ottla.client.streams.consumer_settings import consumer_settings
from ottla.client.streams.interceptors import ConsumerInterceptors
from ottla.interceptors import ConsumerInterceptor
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition

ONE = Message("t", 0, 7, 1_000, b"k", b"one")
TWO = Message("t", 1, 9, 1_000, b"k", b"two")


class Noting(ConsumerInterceptor):
    def __init__(self) -> None:
        self.seen: list[list[Message[Any, Any]]] = []
        self.committed: list[Mapping[TopicPartition, int]] = []

    def on_consume(self, messages: Sequence[Message[Any, Any]]) -> Sequence[Message[Any, Any]]:
        self.seen.append(list(messages))
        return messages

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed.append(offsets)


class Upper(ConsumerInterceptor):
    def on_consume(self, messages: Sequence[Message[Any, Any]]) -> Sequence[Message[Any, Any]]:
        return [message._replace(value=message.value.upper()) for message in messages]


class Dropping(ConsumerInterceptor):
    def on_consume(self, messages: Sequence[Message[Any, Any]]) -> Sequence[Message[Any, Any]]:
        return messages[1:]


class Failing(ConsumerInterceptor):
    def on_consume(self, messages: Sequence[Message[Any, Any]]) -> Sequence[Message[Any, Any]]:
        raise ValueError("of the interceptor")

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        raise ValueError("of the interceptor")


def test_a_batch_is_seen_at_once_and_each_gets_what_the_one_before_it_made() -> None:
    noting = Noting()
    found = ConsumerInterceptors([Upper(), noting]).on_consume([ONE, TWO])
    assert [message.value for message in found] == [b"ONE", b"TWO"]
    assert noting.seen == [found]


def test_a_single_message_is_a_batch_of_one() -> None:
    noting = Noting()
    assert ConsumerInterceptors([noting]).on_message(ONE) == ONE
    assert noting.seen == [[ONE]]


def test_no_message_is_no_batch() -> None:
    noting = Noting()
    assert ConsumerInterceptors([noting]).on_consume([]) == []
    assert noting.seen == []


@pytest.mark.parametrize("bad", [Failing(), Dropping()])
def test_one_that_fails_or_drops_messages_is_logged_and_changes_nothing(
    bad: ConsumerInterceptor, caplog: pytest.LogCaptureFixture
) -> None:
    assert ConsumerInterceptors([bad, Upper()]).on_message(ONE).value == b"ONE"
    assert f"the interceptor {type(bad).__name__} has failed" in caplog.text


def test_commits_reach_all_when_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    noting = Noting()
    ConsumerInterceptors([Failing(), noting]).on_commit({TopicPartition("t", 0): 8})
    assert noting.committed == [{TopicPartition("t", 0): 8}]
    assert "the interceptor Failing has failed" in caplog.text


def test_a_consumer_without_a_group_reports_no_commit() -> None:
    noting = Noting()
    with Consumer("localhost:1", interceptors=[noting]) as consumer:
        consumer.assign({("t", 0): 7})
        session = consumer._session
        assert session is not None
        outcome = session.engine.commit_offsets(session.buffer, {TopicPartition("t", 0): 8})
        session.engine.wait_for(outcome, 10_000)
    assert noting.committed == []


def test_what_is_no_interceptor_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no interceptor"):
        consumer_settings("Consumer", "g", {"interceptors": [Noting]})  # type: ignore[list-item]


def test_a_consumer_without_interceptors_has_none() -> None:
    assert consumer_settings("Consumer", "g", {}).interceptors is None
