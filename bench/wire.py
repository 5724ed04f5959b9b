"""The few requests by which the benchmark makes and removes topics, for any Kafka broker (standard library only)."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

ANSWER_BYTES_MAX: Final = 64 << 20
TIMEOUT_S: Final = 60
# Apache Kafka makes some hundred partitions in a second, fewer on a busy machine.
SERVED_TIMEOUT_S: Final = 240

METADATA: Final = (3, 4)
LIST_OFFSETS: Final = (2, 2)
API_VERSIONS: Final = (18, 0)
FIND_COORDINATOR: Final = (10, 0)
CREATE_TOPICS: Final = (19, 4)
DELETE_TOPICS: Final = (20, 1)
ELECT_LEADERS: Final = (43, 1)
CREATE_PARTITIONS: Final = (37, 1)
DESCRIBE_QUORUM: Final = (55, 0)

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LATEST_TIMESTAMP: Final = -1
NO_SETTINGS: Final[Mapping[str, str]] = {}


class BrokerRefused(RuntimeError):
    """The broker answered with an error code."""


class Reader:
    """Fields of one answer, in their order."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._position = 0

    def integer(self, code: str) -> int:
        """One signed integer by its struct code: b, h, i or q."""
        layout = struct.Struct(">" + code)
        (value,) = layout.unpack_from(self._answer, self._position)
        self._position += layout.size
        return int(value)

    @property
    def size_bytes(self) -> int:
        return len(self._answer)

    def text(self) -> str | None:
        length = self.integer("h")
        if length < 0:
            return None
        self._position += length
        return self._answer[self._position - length : self._position].decode()

    def take(self, size_bytes: int) -> bytes:
        self._position += size_bytes
        return self._answer[self._position - size_bytes : self._position]

    def integers(self, code: str) -> list[int]:
        return [self.integer(code) for _ in range(self.integer("i"))]


def text_field(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


@dataclass(frozen=True, slots=True)
class PartitionState:
    index: int
    error_code: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Wire:
    """One blocking connection, a context manager; a request and its answer at a time."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self._port = port
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, api: tuple[int, int], body: bytes) -> Reader:
        """Send one request (key, version) and give its answer's body."""
        self._correlation_id += 1
        request = struct.pack(">hhi", *api, self._correlation_id) + text_field("bench") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (size_bytes,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size_bytes <= ANSWER_BYTES_MAX:
            raise BrokerRefused(f"an answer claims {size_bytes} bytes")
        answer = Reader(self._receive(size_bytes))
        if answer.integer("i") != self._correlation_id:
            raise BrokerRefused("an answer has another correlation id")
        return answer

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """API key -> (lowest, highest version)."""
        answer = self.ask(API_VERSIONS, b"")
        _check(answer.integer("h"), "ApiVersions")
        ranges = [(answer.integer("h"), answer.integer("h"), answer.integer("h")) for _ in range(answer.integer("i"))]
        return {key: (lowest, highest) for key, lowest, highest in ranges}

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        """Create it with one replica and wait until every partition answers."""
        self.ask_for_topic(topic, partitions, 1, settings)
        self.wait_until_served(topic, partitions)

    def ask_for_topic(self, topic: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Create it without waiting for its leaders."""
        body = struct.pack(">i", 1) + text_field(topic) + struct.pack(">ihii", partitions, replicas, 0, len(settings))
        body += b"".join(text_field(name) + text_field(value) for name, value in settings.items())
        answer = self.ask(CREATE_TOPICS, body + struct.pack(">ib", TIMEOUT_S * 1000, 0))
        answer.integer("i")  # throttle time
        for _ in range(answer.integer("i")):
            name, error_code, message = answer.text(), answer.integer("h"), answer.text()
            _check(error_code, f"CreateTopics {name}: {message}")

    def wait_until_served(self, topic: str, partitions: int) -> None:
        """Until every partition answers: after the topic was made, or the broker has started again."""
        deadline = time.monotonic() + SERVED_TIMEOUT_S
        while not self._is_served(topic, partitions):
            if time.monotonic() > deadline:
                raise BrokerRefused(f"topic {topic} has had no leaders for {SERVED_TIMEOUT_S} s")
            time.sleep(0.05)

    def delete_topic(self, topic: str) -> None:
        answer = self.ask(DELETE_TOPICS, struct.pack(">i", 1) + text_field(topic) + struct.pack(">i", TIMEOUT_S * 1000))
        answer.integer("i")
        for _ in range(answer.integer("i")):
            name, error_code = answer.text(), answer.integer("h")
            _check(error_code, f"DeleteTopics {name}")

    def partitions(self, topic: str) -> list[PartitionState]:
        """What Metadata knows of the topic: nothing while it does not exist.  Never creates it."""
        return self.ports_and_partitions(topic)[1]

    def ports_and_partitions(self, topic: str) -> tuple[dict[int, int], list[PartitionState]]:
        """The port of each broker by its node id, and what Metadata knows of the topic."""
        answer = self.ask(METADATA, struct.pack(">i", 1) + text_field(topic) + struct.pack(">b", 0))
        answer.integer("i")
        ports: dict[int, int] = {}
        for _ in range(answer.integer("i")):  # brokers: id, host, port, rack
            node_id, _host = answer.integer("i"), answer.text()
            ports[node_id] = answer.integer("i")
            answer.text()
        answer.text(), answer.integer("i")  # cluster id, controller
        assert answer.integer("i") == 1, "one topic was asked for"
        error_code = answer.integer("h")
        answer.text(), answer.integer("b")
        states = []
        for _ in range(answer.integer("i")):
            partition_error, index, leader = answer.integer("h"), answer.integer("i"), answer.integer("i")
            replicas, in_sync = tuple(answer.integers("i")), tuple(answer.integers("i"))
            states.append(PartitionState(index, partition_error, leader, replicas, in_sync))
        if error_code not in (0, UNKNOWN_TOPIC_OR_PARTITION):
            _check(error_code, f"Metadata {topic}")
        return ports, states

    def leader_ports(self, topic: str) -> tuple[int, ...]:
        """Of each partition, in their order."""
        ports, states = self.ports_and_partitions(topic)
        return tuple(ports[state.leader] for state in sorted(states, key=lambda state: state.index))

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Give it so many partitions, and wait until every one answers."""
        body = struct.pack(">i", 1) + text_field(topic) + struct.pack(">ii", partitions, -1)
        answer = self.ask(CREATE_PARTITIONS, body + struct.pack(">ib", TIMEOUT_S * 1000, 0))
        answer.integer("i")  # throttle time
        for _ in range(answer.integer("i")):
            name, error_code, message = answer.text(), answer.integer("h"), answer.text()
            _check(error_code, f"CreatePartitions {name}: {message}")
        self.wait_until_served(topic, partitions)

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int | None]:
        """Partition -> log end offset, None where the partition answers with an error code."""
        return self.end_offsets_of(topic, range(partitions))

    def end_offsets_of(self, topic: str, indexes: Sequence[int]) -> dict[int, int | None]:
        asked = b"".join(struct.pack(">iq", index, LATEST_TIMESTAMP) for index in indexes)
        head = struct.pack(">ibi", -1, 0, 1) + text_field(topic) + struct.pack(">i", len(indexes))
        answer = self.ask(LIST_OFFSETS, head + asked)
        answer.integer("i")
        assert answer.integer("i") == 1, "one topic was asked for"
        answer.text()
        ends: dict[int, int | None] = {}
        for _ in range(answer.integer("i")):
            index, error_code = answer.integer("i"), answer.integer("h")
            _, offset = answer.integer("q"), answer.integer("q")
            ends[index] = offset if error_code == 0 else None
        return ends

    def coordinator(self, group: str) -> int:
        """The node id of the group's coordinator, -1 while there is none."""
        return self._coordinator(group)[0]

    def coordinator_port(self, group: str) -> int:
        """The port of the group's coordinator, -1 while there is none."""
        return self._coordinator(group)[1]

    def _coordinator(self, group: str) -> tuple[int, int]:
        answer = self.ask(FIND_COORDINATOR, text_field(group))
        error_code, node_id, _host, port = answer.integer("h"), answer.integer("i"), answer.text(), answer.integer("i")
        return (node_id, port) if error_code == 0 else (-1, -1)

    def elect_preferred(self, topic: str, partitions: int) -> None:
        """Let the replicas that are assigned first lead; those that do already are no error."""
        indexes = struct.pack(f">i{partitions}i", partitions, *range(partitions))
        body = struct.pack(">bi", 0, 1) + text_field(topic) + indexes + struct.pack(">i", TIMEOUT_S * 1000)
        answer = self.ask(ELECT_LEADERS, body)
        answer.integer("i")
        _check(answer.integer("h"), "ElectLeaders")

    def brokers_count(self) -> int:
        """How many brokers this one knows to be alive."""
        answer = self.ask(METADATA, struct.pack(">ib", 0, 0))
        answer.integer("i")
        return answer.integer("i")

    def metadata_bytes(self) -> int:
        """The size of the answer that names every topic of the cluster."""
        return self.ask(METADATA, struct.pack(">ib", -1, 0)).size_bytes

    def quorum_leader(self) -> int:
        """The active controller of an Apache Kafka (KRaft)."""
        # Flexible: lengths are written plus one, an empty section of tags ends the header and each structure.
        one, name, no_tags = b"\x02", b"\x13__cluster_metadata", b"\x00"
        partition = one + struct.pack(">i", 0)
        answer = self.ask(DESCRIBE_QUORUM, no_tags + one + name + partition + 3 * no_tags)
        answer.take(len(no_tags))
        _check(answer.integer("h"), "DescribeQuorum")
        answer.take(len(one + name + partition))
        _check(answer.integer("h"), "DescribeQuorum of its partition")
        return answer.integer("i")

    def _is_served(self, topic: str, partitions: int) -> bool:
        """Metadata may name a leader before that broker leads, so each leader itself is asked too."""
        ports, states = self.ports_and_partitions(topic)
        if len(states) != partitions or any(state.error_code != 0 or state.leader not in ports for state in states):
            return False
        for leader in {state.leader for state in states}:
            indexes = [state.index for state in states if state.leader == leader]
            if ports[leader] == self._port:
                ends = self.end_offsets_of(topic, indexes)
            else:
                with Wire(ports[leader]) as wire:
                    ends = wire.end_offsets_of(topic, indexes)
            if len(ends) != len(indexes) or None in ends.values():
                return False
        return True

    def _receive(self, size_bytes: int) -> bytes:
        received = bytearray()
        while len(received) < size_bytes:
            part = self._socket.recv(size_bytes - len(received))
            if not part:
                raise BrokerRefused("the broker closed the connection")
            received += part
        return bytes(received)


def _check(error_code: int, what: str) -> None:
    if error_code != 0:
        raise BrokerRefused(f"{what}: error code {error_code}")
