"""A process with a member of a KIP-848 group: its streams process messages, stop, and may be paused or killed."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.member import KafkaGroupMember
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.client.membership.kafka_group.protocol import Ask
from ottla.client.membership.membership import CommitRefused, Event, Failed
from ottla.client.wire.errors import ConnectionLost
from ottla.consumers.effects import Committed, Left, Lost, Released, Revoke, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.identifiers import NO_OFFSET, TopicPartition

OPTIONS = KafkaGroupOptions(rebalance_timeout_ms=20_000)


class Held:
    """A claim; `asked` is the processed offset, NO_OFFSET before a first position was found."""

    def __init__(self, started: Start) -> None:
        self.claim: ClaimId = started.claim
        self.asked = started.offset
        self.is_stopping = False


class Node:
    def __init__(self, number: int, topics: dict[str, int]) -> None:
        self.name = f"m{number}"
        self.member = KafkaGroupMember("g", self.name, number, Subscription(topics), OPTIONS, random.Random(number))
        self.topics = topics
        self.held: dict[TopicPartition, Held] = {}
        self.started: list[tuple[TopicPartition, int]] = []
        self.in_flight: tuple[Ask, int] | None = None
        self.answer: object = None
        self.is_connected = False
        self.is_running = True
        self.is_paused = False
        self.has_left = False

    def hands_out(self, now_ms: int) -> set[TopicPartition]:
        """The partitions that its streams may hand out now, or after a pause when it resumes."""
        if not self.is_running or now_ms >= self.member.hand_out_until_ms:
            return set()
        return {partition for partition, held in self.held.items() if not held.is_stopping}

    def owns(self, now_ms: int) -> set[TopicPartition]:
        """The partitions that no other member may have: stopped ones, too, until they are committed and released."""
        return set(self.held) if self.is_running and now_ms < self.member.hand_out_until_ms else set()

    def look(self, now_ms: int) -> Ask | None:
        """The request under way, or one that is due now."""
        if self.in_flight is None:
            ask = self.member.next_ask(now_ms)
            if ask is None:
                assert self.member.is_over or self.member.due_ms > now_ms, "it would be asked again and again"
                return None
            self.in_flight = (ask, now_ms)
            if not self.is_connected:
                self.is_connected = True
                self.take(self.member.on_connected(1, offers_consumer=True))
        return self.in_flight[0]

    def hear(self, answer: object, now_ms: int) -> None:
        """None: the connection broke."""
        assert self.in_flight is not None
        (ask, sent_ms), self.in_flight, self.answer = self.in_flight, None, None
        if answer is None:
            self.is_connected = False
            self.take(self.member.on_no_answer(ask, ConnectionLost("it broke"), now_ms))
        else:
            self.take(self.member.on_answer(ask, answer, sent_ms, now_ms))

    def ask_past(self, count: int, now_ms: int) -> None:
        for partition in sorted(self.hands_out(now_ms)):
            held = self.held[partition]
            held.asked = max(held.asked, 0) + count

    def commit(self) -> None:
        rows = [(partition, held.claim, held.asked) for partition, held in self.held.items() if held.asked > NO_OFFSET]
        self.take(self.member.commit(rows))

    def stop(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        for partition in partitions:
            held = self.held.get(partition)
            if held is not None and held.is_stopping:
                self.take(self.member.on_stopped(partition, held.claim, held.asked, now_ms))

    def stop_all(self, now_ms: int) -> None:
        self.stop([partition for partition, held in self.held.items() if held.is_stopping], now_ms)

    def leave(self, now_ms: int) -> None:
        self.take(self.member.leave(now_ms))

    def die(self) -> None:
        self.is_running = False
        self.held.clear()

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            assert not self.has_left, f"{event} after the end"
            match event:
                case Start(partition, _, offset):
                    assert partition not in self.held, f"{event} while it is started"
                    self.held[partition] = Held(event)
                    self.started.append((partition, offset))
                case Revoke(partition, claim):
                    assert self.held[partition].claim == claim
                    assert not self.held[partition].is_stopping, "it is revoked once"
                    self.held[partition].is_stopping = True
                case Released(partition, claim, offset):
                    held = self.held.pop(partition)
                    assert (held.claim, held.is_stopping, held.asked) == (claim, True, offset)
                case Lost(partition, claim):
                    assert self.held.pop(partition).claim == claim
                case Committed(partition, claim, offset) | CommitRefused(partition, claim, offset):
                    assert self.held[partition].claim == claim
                    assert offset <= self.held[partition].asked
                case Left() | Failed():
                    assert not isinstance(event, Failed), event
                    assert not self.held
                    self.has_left = True
                    self.is_running = False
