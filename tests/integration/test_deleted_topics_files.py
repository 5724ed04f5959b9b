"""Files of deleted topics are closed when no response reads them any more: creations need their descriptors."""

from __future__ import annotations

import os
import random
import sys

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.protocol.api import ApiKey
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import FETCH_VERSION, PRODUCE_VERSION, RawPeer, fetch_request, produce_frame

OPEN_FILES_MAX = 1_024
# The partitions of all topics are more than the files, those of one are not.
PARTITIONS_COUNT = 200
TOPICS_COUNT = 12
LIMITED = ("sh", "-c", f'ulimit -n {OPEN_FILES_MAX}; exec "$0" "$@"', sys.executable, "-m", "ottla")

VALUE_BYTES = 900_000
VALUES_COUNT = 16
# Far less than the response, so that most of it stays with the broker.
RECEIVE_BUFFER_BYTES = 16 * 1024


def open_log_paths(broker: RunningBroker) -> list[str]:
    """The segment files that the broker has open, one for each descriptor."""
    paths = []
    for name in os.listdir(f"/proc/{broker.pid}/fd"):
        try:
            paths.append(os.readlink(f"/proc/{broker.pid}/fd/{name}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    return [path for path in paths if ".log" in path]


def test_topics_are_created_and_deleted_in_turn_within_a_limit_of_open_files() -> None:
    with RunningBroker(command=LIMITED) as broker, Cluster(broker.bootstrap) as cluster:
        admin = Admin(cluster)
        for number in range(TOPICS_COUNT):
            name = f"short-lived-{number}"
            admin.create_topic(name, PARTITIONS_COUNT)
            with RawPeer(broker) as peer:
                peer.send(produce_frame(name, 1, index=number))
                peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
            assert admin.delete_topics([name]) == {name: None}
        eventually(lambda: not open_log_paths(broker))
        deleted = [name for name in os.listdir(broker.data_dir) if "short-lived" in name]
        assert deleted, "the files stay for file.delete.delay.ms, without descriptors"


def test_slow_fetch_of_a_deleted_topic_receives_its_own_bytes() -> None:
    values = random.Random(19)
    with RunningBroker() as broker, Cluster(broker.bootstrap) as cluster:
        admin = Admin(cluster)
        admin.create_topic("read", configs={"retention.ms": "-1"})
        with RawPeer(broker) as peer:
            for number in range(VALUES_COUNT):
                peer.send(produce_frame("read", number, value=values.randbytes(VALUE_BYTES)))
                peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
            wanted = fetch_request("read", 0, max_wait_ms=0)
            peer.ask(ApiKey.FETCH, FETCH_VERSION, wanted)
            whole = peer.frame()
        assert whole is not None
        assert len(whole) > VALUE_BYTES * VALUES_COUNT
        with RawPeer(broker, receive_buffer_bytes=RECEIVE_BUFFER_BYTES) as slow:
            slow.ask(ApiKey.FETCH, FETCH_VERSION, wanted)
            start = slow.socket.recv(1_000)
            assert admin.delete_topics(["read"]) == {"read": None}
            # These take the descriptors that are free, with other bytes.
            admin.create_topic("other", 20, configs={"retention.ms": "-1"})
            with RawPeer(broker) as peer:
                for index in range(20):
                    peer.send(produce_frame("other", index, value=bytes(VALUE_BYTES), index=index))
                    peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
            assert [path for path in open_log_paths(broker) if "/read-0" in path], "the response is not sent yet"
            received = bytearray(start)
            while len(received) < len(whole) + 4:
                received += slow.socket.recv(1 << 16)
        assert received[4:] == whole
        eventually(lambda: not [path for path in open_log_paths(broker) if "/read-0" in path])
