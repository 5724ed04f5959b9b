"""Corrupted and random frames, of every API and version, at a live broker: it answers or closes, and keeps running.

The corruption comes from a seeded generator, so that a failure can be reproduced.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.frame import request_frame
from ottla.protocol.messages import encode_request, request_class
from ottla.protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import RawPeer, open_files, resident_bytes
from tests.property.wire_samples import sample

MIB = 1 << 20
# In `./dev test`, and in `./dev suites`.
WOUNDED_PER_VERSION = (25, 100)
API_AND_VERSION = [
    (api, version) for api, (lowest, highest) in API_VERSIONS.items() for version in range(lowest, highest + 1)
]
# Groups take the samples' time-outs of 1 ms, and answer a join at once.
SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "3",
    "group.min.session.timeout.ms": "1",
    "group.initial.rebalance.delay.ms": "0",
}
# Requests whose wait time may be weeks.
WAITING = {ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
LIES = [struct.pack(">i", 2**31 - 1), struct.pack(">i", -2), b"\xff\xff\xff\xff\x0f", b"\x7f\xff", b"\x00", b"\xff"]


LAST_ID = 424_242
LAST = request_frame(
    ApiKey.API_VERSIONS, 0, LAST_ID, None, encode_request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    # Few partitions for each topic that a corrupted CreateTopics or Metadata request happens to create.
    with RunningBroker(settings=SETTINGS) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("abc", 2)
        with RawPeer(broker) as peer:
            # From here on there is a coordinator, so that group requests reach the groups.
            peer.ask(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["abc"]))
            peer.answer(ApiKey.FIND_COORDINATOR, 4)
        yield broker


def true_frame(api: ApiKey, version: int) -> bytes:
    message = sample(request_class(api), version)
    if api is ApiKey.FETCH:
        # The sample waits for 1 ms and claims to be replica 1.
        message.replica_id = -1  # type: ignore[attr-defined]  # a FetchRequest
    if api is ApiKey.FIND_COORDINATOR:
        # The sample requests the coordinator of a transaction.
        message.key_type = 0  # type: ignore[attr-defined]  # a FindCoordinatorRequest
    return request_frame(api, version, 7, "hostile", encode_request(api, version, message))


def wounded(frame: bytes, chance: random.Random) -> bytes:
    """Truncations, wrong values, inserted bytes and flipped bits after the length prefix, which is mostly correct."""
    body = bytearray(frame[4:])
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(body))
        lie = chance.choice(LIES)
        match chance.randint(0, 4):
            case 0:
                del body[at:]
            case 1:
                body[at : at + len(lie)] = lie
            case 2:
                body[at:at] = lie
            case 3:
                del body[at : at + 2]
            case _:
                if at < len(body):
                    body[at] ^= chance.randint(1, 255)
    length = len(body) if chance.random() < 0.9 else chance.choice([0, -1, len(body) + 5, 2**31 - 1])
    return struct.pack(">i", length) + body


def assert_ends(broker: RunningBroker, frames: bytes, *, waits_for_more: bool = True) -> None:
    """The broker closes, or answers a valid request that follows: nothing hangs.

    After bytes that are no whole frame, or a request that may wait for weeks, the test closes its end instead.
    """
    with RawPeer(broker) as peer:
        with contextlib.suppress(OSError):  # closed already
            peer.send(frames if waits_for_more else frames + LAST)
            if waits_for_more:
                peer.socket.shutdown(socket.SHUT_WR)
        while (frame := peer.frame()) is not None:
            if frame[:4] == struct.pack(">i", LAST_ID):
                return


def assert_lives(broker: RunningBroker) -> None:
    assert broker.is_running
    with RawPeer(broker) as peer:
        peer.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("t", "1"))
        assert isinstance(peer.answer(ApiKey.API_VERSIONS, 3)[1], ApiVersionsResponse)


@pytest.mark.parametrize("wounded_count", WOUNDED_PER_VERSION)
def test_broker_survives_corrupted_frames_of_every_api_and_version(broker: RunningBroker, wounded_count: int) -> None:
    assert_lives(broker)
    chance = random.Random(20_110_612)
    files, memory = open_files(broker), resident_bytes(broker)
    for api, version in API_AND_VERSION:
        frame = true_frame(api, version)
        for _ in range(wounded_count):
            hurt = wounded(frame, chance)
            is_whole = struct.unpack_from(">i", hurt)[0] == len(hurt) - 4
            assert_ends(broker, hurt, waits_for_more=api in WAITING or not is_whole)
    assert_lives(broker)
    assert resident_bytes(broker) - memory < 64 * MIB
    # Topics that were created by accident hold at most three files each.
    assert open_files(broker) - files < 100
    assert_no_bug(broker)


def test_broker_survives_every_truncation_of_a_request(broker: RunningBroker) -> None:
    for api, (_, version) in API_VERSIONS.items():
        frame = true_frame(api, version)
        for cut in range(0, len(frame) - 4, 3):
            assert_ends(broker, struct.pack(">i", cut) + frame[4 : 4 + cut], waits_for_more=False)
    assert_lives(broker)
    assert_no_bug(broker)


def test_broker_survives_random_bytes_and_other_protocols(broker: RunningBroker) -> None:
    chance = random.Random(7)
    for number in range(200):
        noise = chance.randbytes(chance.randint(1, 2_000))
        assert_ends(broker, noise if number % 2 else struct.pack(">i", len(noise)) + noise)
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0-x\r\n"):
        assert_ends(broker, greeting)
    assert_lives(broker)
    assert_no_bug(broker)


@pytest.mark.parametrize("key", [-1, 4, 27, 70, 999, 32_767])
def test_broker_closes_on_an_api_that_it_does_not_offer(broker: RunningBroker, key: int) -> None:
    with RawPeer(broker) as peer:
        peer.send(struct.pack(">ihhih", 10, key, 0, 1, -1))
        assert peer.is_closed_by_broker()
    assert_lives(broker)


def test_broker_answers_unknown_versions_of_api_versions(broker: RunningBroker) -> None:
    with RawPeer(broker) as peer:
        peer.send(struct.pack(">ihhihb", 11, int(ApiKey.API_VERSIONS), 99, 1, -1, 0))
        frame = peer.frame()
        assert frame is not None
        assert struct.unpack_from(">ih", frame) == (1, 35)


def assert_no_bug(broker: RunningBroker) -> None:
    """Refusals are logged; a traceback or an error is a bug of the broker."""
    assert not [line for line in broker.log_lines if " ERROR " in line or "Traceback" in line]


def test_flood_of_garbage_logs_few_lines(broker: RunningBroker) -> None:
    before, began_s = broker.log_lines_count, time.monotonic()
    for _ in range(300):
        with RawPeer(broker) as peer:
            peer.send(b"GET / HTTP/1.1\r\n\r\n")
            assert peer.is_closed_by_broker()
    refused = [line for line in broker.log_lines_after(before) if "request.refused" in line]
    assert len(refused) <= 2 + (time.monotonic() - began_s)

    def one_more_line() -> bool:
        with RawPeer(broker) as peer:
            peer.send(b"GET / HTTP/1.1\r\n\r\n")
            assert peer.is_closed_by_broker()
        return any("left_out_count=" in line for line in broker.log_lines_after(before) if "request.refused" in line)

    eventually(one_more_line)
