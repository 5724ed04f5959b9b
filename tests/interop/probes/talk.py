"""A conversation with one broker: requests in the order of a script, and every answer kept under the script's label."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from ottla.protocol.api import ApiKey
from ottla.protocol.frame import read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.eventually import eventually
from tests.interop.probes.answers import Flat, Names, flatten
from tests.interop.probes.kafka_request import KafkaRequest

T = TypeVar("T")

ANSWER_WITHIN_S: Final = 120.0
MAIN: Final = "main"
CLOSED: Final = "the broker closed the connection"
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


class Talk:
    """Connections have names, so that two members of a group can wait at the same time.  `answers`: label to answer."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._address = (host, int(port))
        self._sockets: dict[str, socket.socket] = {}
        self._waiting: dict[str, list[Callable[[bytes], object]]] = {}
        self._names = Names(int(port))
        self.answers: dict[str, Flat] = {}

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()

    def ask(self, label: str, version: int, request: object, *, on: str = MAIN) -> object:
        """Send, wait, keep the answer under `label` and return it; None when the broker closed the connection."""
        try:
            self.send(version, request, on=on)
        except BrokenPipeError:
            self.keep(label, {"connection": CLOSED})
            return None
        return self.receive(label, on=on)

    def ask_for(self, label: str, version: int, request: object, answer: type[T], *, on: str = MAIN) -> T:
        """As `ask`, for scripts that use the answer."""
        found = self.ask(label, version, request, on=on)
        assert isinstance(found, answer), f"{label}: {found!r}"
        return found

    def send(self, version: int, request: object, *, on: str = MAIN) -> None:
        """Send only; `receive` returns the oldest answer of the connection."""
        frame, read_answer = _exchange(version, request)
        self.send_bytes(frame, on=on)
        self._waiting.setdefault(on, []).append(read_answer)

    def send_silently(self, version: int, request: object, *, on: str = MAIN) -> None:
        """Send a request without a response (acks=0)."""
        self.send(version, request, on=on)
        self._waiting[on].pop()

    def receive(self, label: str, *, on: str = MAIN) -> object:
        read_answer = self._waiting[on].pop(0)
        frame = self.receive_frame(on=on)
        if frame is None:
            self.keep(label, {"connection": CLOSED})
            return None
        answer = read_answer(frame)
        self.keep(label, flatten(answer, self._names))
        return answer

    def keep(self, label: str, answer: Flat) -> None:
        assert label not in self.answers, f"the label {label!r} is there twice"
        self.answers[label] = answer

    def send_bytes(self, data: bytes, *, on: str = MAIN) -> None:
        """A whole frame, including its length, with any content."""
        if on not in self._sockets:
            self._sockets[on] = socket.create_connection(self._address, ANSWER_WITHIN_S)
        self._sockets[on].sendall(data)

    def receive_frame(self, *, on: str = MAIN) -> bytes | None:
        """The next answer without its length prefix.  None when the broker closed: `on` is then a new connection."""
        head = self._exactly(4, on)
        frame = None if head is None else self._exactly(int(struct.unpack(">i", head)[0]), on)
        if frame is None:
            self._sockets.pop(on).close()
        return frame

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Unlabelled; waits until Metadata has it."""
        entries = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        topic = CreatableTopic(name, partitions, 1, [], entries)
        self.ask_quietly(7, CreateTopicsRequest([topic], 10_000))
        self.settle_topic(name)

    def settle_topic(self, name: str) -> MetadataResponse:
        """Wait until every partition of a topic has a leader that serves it."""
        request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        answer = self.wait_until(12, request, _has_leaders)
        assert isinstance(answer, MetadataResponse)
        indexes = [ListOffsetsPartition(part.partition_index, -1, -1) for part in answer.topics[0].partitions]
        self.wait_until(5, ListOffsetsRequest(topics=[ListOffsetsTopic(name, indexes)]), _has_no_error)
        return answer

    def settle_coordinator(self, group: str) -> None:
        """Wait until the broker coordinates a group: the first time it has to make the offsets topic and to load it."""
        self.wait_until(4, FindCoordinatorRequest(coordinator_keys=[group]), _has_a_coordinator)
        self.wait_until(5, DescribeGroupsRequest([group]), _is_coordinated)

    def ask_until(
        self, label: str, version: int, request: object, has_come: Callable[[object], bool], *, on: str = MAIN
    ) -> object:
        """Repeat the request until the expected answer comes; keep only that one."""
        answer = self.wait_until(version, request, has_come, on=on)
        self.keep(label, flatten(answer, self._names))
        return answer

    def wait_until(
        self, version: int, request: object, has_come: Callable[[object], bool], *, on: str = "quiet"
    ) -> object:
        """Repeat the request, unlabelled, until the expected answer comes; return it."""
        return eventually(lambda: self.ask_quietly(version, request, on=on), has_come)

    def ask_quietly(self, version: int, request: object, *, on: str = "quiet") -> object:
        """An answer that is not compared, on a separate connection unless one is named."""
        frame, read_answer = _exchange(version, request)
        self.send_bytes(frame, on=on)
        answer = self.receive_frame(on=on)
        assert answer is not None, CLOSED
        return read_answer(answer)

    def name_of(self, field: str, value: object) -> object:
        """The value as it is compared: random ones by the order of their first appearance."""
        return self._names.plain(field, value)

    def _exactly(self, size_bytes: int, on: str) -> bytes | None:
        received = bytearray()
        while len(received) < size_bytes:
            try:
                part = self._sockets[on].recv(size_bytes - len(received))
            except ConnectionResetError:
                return None
            if not part:
                return None
            received += part
        return bytes(received)


def _has_leaders(answer: object) -> bool:
    assert isinstance(answer, MetadataResponse)
    (topic,) = answer.topics
    return topic.error_code == 0 and all(part.error_code == 0 for part in topic.partitions)


def _has_no_error(answer: object) -> bool:
    assert isinstance(answer, ListOffsetsResponse)
    return all(part.error_code == 0 for topic in answer.topics for part in topic.partitions)


def _has_a_coordinator(answer: object) -> bool:
    assert isinstance(answer, FindCoordinatorResponse)
    return answer.coordinators[0].error_code == 0


def _is_coordinated(answer: object) -> bool:
    assert isinstance(answer, DescribeGroupsResponse)
    return answer.groups[0].error_code == 0


def _exchange(version: int, request: object) -> tuple[bytes, Callable[[bytes], object]]:
    """The frame of a request, and what reads the frame of its response."""
    if isinstance(request, KafkaRequest):
        return request.frame(version), partial(request.read_answer, version)
    api = _api_of(request)

    def read_answer(frame: bytes) -> object:
        _, position = read_response_header(api, version, frame, 0, len(frame))
        return decode_response(api, version, frame[position:])

    return request_frame(api, version, 1, "probe", encode_request(api, version, request)), read_answer


def _api_of(request: object) -> ApiKey:
    stem = type(request).__name__.removesuffix("Request")
    return ApiKey[_WORD.sub("_", stem).upper()]
