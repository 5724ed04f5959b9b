"""A user's code in `send`, and at the acknowledgement: what it changes, and that its errors change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

import ottla
import ottla.aio
from ottla.client.producing.delivery import Receipt
from ottla.client.producing.interceptors import ProducerInterceptors, arguments_of
from ottla.client.producing.settings import ProducerArguments, ProducerSettings
from ottla.client.wire.errors import CallTimedOut
from ottla.interceptors import OutgoingMessages, ProducerInterceptor
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError, OttlaError
from ottla.runtime.event_loop import run
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.producing.sending import Sending

CALL = ("clicks", b"x", b"k", None, 0, [("h", b"1")], 5_000)


class Noting(ProducerInterceptor):
    def __init__(self) -> None:
        self.seen: list[OutgoingMessages] = []
        self.ends: list[tuple[Sequence[Receipt], OttlaError | None]] = []

    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        self.seen.append(messages)
        return messages

    def on_acknowledgement(
        self, messages: OutgoingMessages, receipts: Sequence[Receipt], error: OttlaError | None
    ) -> None:
        self.ends.append((list(receipts), error))


class Marking(ProducerInterceptor):
    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        return replace(messages, headers=(*messages.headers, ("mark", b"1")), topic="others")


class Listing(ProducerInterceptor):
    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        return replace(messages, values=[list(value) for value in messages.values if isinstance(value, dict)])


class Numbering(ProducerInterceptor):
    """Notes the count of earlier notes under its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        messages.notes[self._name] = len(messages.notes)
        return messages


class Remaking(ProducerInterceptor):
    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        made = OutgoingMessages("remade", messages.values, messages.keys, None, (), None, messages.is_set)
        made.notes["remaking"] = True
        return made


class Failing(ProducerInterceptor):
    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        raise ValueError("of the interceptor")

    def on_acknowledgement(
        self, messages: OutgoingMessages, receipts: Sequence[Receipt], error: OttlaError | None
    ) -> None:
        raise ValueError("of the interceptor")


class Forgetting(ProducerInterceptor):
    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        return None  # type: ignore[return-value]


class Dropping(ProducerInterceptor):
    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        return replace(messages, values=[])


class DroppingKeys(ProducerInterceptor):
    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        return replace(messages, keys=[])


def test_a_message_is_seen_as_it_was_sent_and_goes_on_as_it_was() -> None:
    noting = Noting()
    outgoing = ProducerInterceptors([noting]).on_send(*CALL)
    assert noting.seen == [outgoing]
    assert outgoing == OutgoingMessages("clicks", [b"x"], [b"k"], 0, (("h", b"1"),), 5_000, is_set=False)
    assert arguments_of(outgoing) == ("clicks", b"x", b"k", None, 0, (("h", b"1"),), 5_000)


def test_a_set_is_seen_at_once_with_a_key_for_each() -> None:
    interceptors = ProducerInterceptors([Noting()])
    outgoing = interceptors.on_send("clicks", iter([b"x", b"y"]), b"k", None, None, None, None)
    assert (outgoing.values, outgoing.keys, outgoing.is_set) == ([b"x", b"y"], [b"k", b"k"], True)
    assert arguments_of(outgoing) == ("clicks", [b"x", b"y"], None, [b"k", b"k"], None, (), None)


def test_each_gets_what_the_one_before_it_made() -> None:
    noting = Noting()
    outgoing = ProducerInterceptors([Marking(), noting]).on_send(*CALL)
    assert noting.seen == [outgoing]
    assert (outgoing.topic, outgoing.headers) == ("others", (("h", b"1"), ("mark", b"1")))


def test_notes_outlast_an_interceptor_that_makes_the_messages_without_replace() -> None:
    outgoing = ProducerInterceptors([Numbering("a"), Remaking(), Numbering("b")]).on_send(*CALL)
    assert outgoing.topic == "remade"
    assert outgoing.notes == {"a": 0, "remaking": True, "b": 2}


@pytest.mark.parametrize("bad", [Failing(), Forgetting(), Dropping(), DroppingKeys()])
def test_one_that_fails_is_logged_and_changes_nothing(
    bad: ProducerInterceptor, caplog: pytest.LogCaptureFixture
) -> None:
    noting = Noting()
    interceptors = ProducerInterceptors([bad, noting])
    outgoing = interceptors.on_send(*CALL)
    assert (outgoing.topic, outgoing.values, outgoing.keys) == ("clicks", [b"x"], [b"k"])
    assert f"the interceptor {type(bad).__name__} has failed" in caplog.text
    interceptors.on_refused(outgoing, OttlaError("no"))
    [(receipts, error)] = noting.ends
    assert (receipts, str(error)) == ([], "no")


@pytest.mark.parametrize("is_set", [False, True])
def test_the_acknowledgement_has_the_receipts(is_set: bool) -> None:
    fake = FakeCluster(1)
    fake.add_topic("clicks", 1)
    sending = Sending(fake)
    noting = Noting()
    interceptors = ProducerInterceptors([noting])
    outgoing = interceptors.on_send("clicks", [b"x", b"y"] if is_set else b"x", None, None, None, None, None)
    delivery = sending.send_set("clicks", [b"x", b"y"]) if is_set else sending.send("clicks", b"x")
    interceptors.watch(outgoing, delivery)
    assert noting.ends == []
    sending.flush()
    [(receipts, error)] = noting.ends
    assert [receipt.offset for receipt in receipts] == [0, 1][: 1 + is_set]
    assert error is None


@pytest.mark.parametrize("is_set", [False, True])
def test_a_failure_that_only_an_interceptor_has_seen_is_raised_by_flush(is_set: bool) -> None:
    fake = FakeCluster(1)
    fake.add_topic("clicks", 1)
    fake.brokers[1].error_of = lambda api, partition: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    sending = Sending(fake)
    noting = Noting()
    interceptors = ProducerInterceptors([noting])
    outgoing = interceptors.on_send("clicks", b"x", None, None, None, None, None)
    interceptors.watch(
        outgoing, sending.send_set("clicks", [b"x", b"y"]) if is_set else sending.send("clicks", b"x", partition=0)
    )
    sending.flush()
    [(receipts, error)] = noting.ends
    assert receipts == []
    assert "TOPIC_AUTHORIZATION_FAILED" in str(error)
    with sending.monitor.lock:
        failures = sending.failures.take()
    assert failures is not None


def test_a_send_that_is_cancelled_while_it_waits_has_an_acknowledgement() -> None:
    noting = Noting()

    async def main() -> None:
        async with ottla.aio.Producer("localhost:1", interceptors=[noting]) as producer:
            task = asyncio.create_task(producer.send("clicks", b"x"))
            await asyncio.sleep(0)
            assert noting.seen
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())
    [(receipts, error)] = noting.ends
    assert (receipts, str(error)) == ([], "send was interrupted: CancelledError")


def test_a_send_that_is_interrupted_has_an_acknowledgement() -> None:
    noting = Noting()

    def interrupt(_value: object) -> bytes:
        raise KeyboardInterrupt

    with (
        ottla.Producer("localhost:1", interceptors=[noting], value_serializer=interrupt) as producer,
        pytest.raises(KeyboardInterrupt),
    ):
        producer.send("clicks", 7)
    [(receipts, error)] = noting.ends
    assert (receipts, str(error)) == ([], "send was interrupted: KeyboardInterrupt")


def test_a_message_whose_value_becomes_a_list_is_one_message() -> None:
    serialized: list[object] = []

    def serialize(value: object) -> bytes:
        serialized.append(value)
        return repr(value).encode()

    settings: ProducerArguments[bytes, object] = {
        "interceptors": [Listing()],
        "value_serializer": serialize,
        "max_block_ms": 0,
    }
    with ottla.Producer("localhost:1", **settings) as producer, pytest.raises(CallTimedOut):
        producer.send("clicks", {"a": 1, "b": 2})

    async def main() -> None:
        async with ottla.aio.Producer("localhost:1", **settings) as producer:
            with pytest.raises(CallTimedOut):
                await producer.send("clicks", {"a": 1, "b": 2})

    run(main())
    assert serialized == [["a", "b"], ["a", "b"]]


def test_without_interceptors_the_short_way_of_send_stays_open() -> None:
    assert ProducerSettings().is_plain
    assert not ProducerSettings(interceptors=(Noting(),)).is_plain


def test_what_is_no_interceptor_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no interceptor"):
        ProducerSettings(interceptors=(Noting,))  # type: ignore[arg-type]
