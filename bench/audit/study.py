"""./dev bench audit: what `audit.enable` costs, in processor time of the broker and of the process that counts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.peers import process_usage

from bench.peers.ottla import OttlaPeer, start_ottla
from bench.raw_client.load import ProduceLoad, put_load
from bench.scenarios.topics import create_topic, settle_disk
from bench.study import ROUND, Observed, Study, StudyOptions, markdown_table, number
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.model.own_names import AUDIT_GROUP

PLAIN: Final = "ottla-plain"
AUDITED: Final = "ottla-audited"
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {PLAIN: {}, AUDITED: {"audit.enable": "true"}}
SHAPES: Final = {
    "b1-f20-p1": ProduceLoad(1, in_flight=20, requests=40_000),
    "b50-f20-p16": ProduceLoad(50, in_flight=20, partitions=16, requests=20_000),
    "b4000-f5-p1": ProduceLoad(4_000, in_flight=5, requests=300),
}
LOADS: Final = 4
QUICK_LOADS: Final = 1
# A process is at rest when it took no more than this in so long; one that counts looks for records every half second.
REST_S: Final = 0.6
REST_LOOKS: Final = 12
REST_CPU_S: Final = 0.03
REST_WITHIN_S: Final = 60

BROKER: Final = "broker_us_per_request"
COUNTER: Final = "counter_us_per_request"
RATE: Final = "requests_per_s"
COUNTER_MB: Final = "counter_mb"


def run(options: StudyOptions, observed: Observed) -> None:
    names = [name for name in SETTINGS if options.has_peer(name)]
    for index in range(options.rounds):
        for name in names if index % 2 == 0 else names[::-1]:
            with observed.may_fail(name), start_ottla("os", options.work_dir, SETTINGS[name]) as peer:
                for shape, load in SHAPES.items():
                    for figures in _measure(peer, shape, load, QUICK_LOADS if options.is_quick else LOADS):
                        observed.add(shape, name, {ROUND: index} | figures)


def _measure(peer: OttlaPeer, shape: str, load: ProduceLoad, loads_count: int) -> Iterator[dict[str, float]]:
    """Some equal loads, each to its end: all that was produced has been counted when its time is taken."""
    create_topic(peer, shape, load.partitions)
    put_load(ProduceLoad(50, in_flight=5, partitions=load.partitions, requests=2 * load.partitions), peer.port, shape)
    _wait_until_followed(peer, shape, load.partitions)
    _counted(peer)
    for _ in range(loads_count):
        settle_disk()
        before = peer.cpu_seconds(), _counter_cpu_seconds(peer)
        result = put_load(load, peer.port, shape)
        _counted(peer)
        after = peer.cpu_seconds(), _counter_cpu_seconds(peer)
        broker_us, counter_us = ((end - start) / load.requests * 1e6 for start, end in zip(before, after, strict=True))
        pid = _counter_pid(peer)
        yield {
            BROKER: broker_us,
            COUNTER: counter_us,
            RATE: result.requests_per_s,
            COUNTER_MB: 0 if pid is None else process_usage.rss_bytes(pid) / 1e6,
        }


def _wait_until_followed(peer: OttlaPeer, topic: str, partitions_count: int) -> None:
    """A new topic is seen with the next look at all topics, `audit.interval.ms` after the last one."""
    if _counter_pid(peer) is None:
        return
    deadline = time.monotonic() + REST_WITHIN_S
    with Cluster(f"127.0.0.1:{peer.port}") as cluster:
        while time.monotonic() < deadline:
            if [each.topic for each in GroupAdmin(cluster).committed(AUDIT_GROUP)].count(topic) == partitions_count:
                return
            time.sleep(0.2)
    raise TimeoutError(f"{topic} is not counted")


def _counted(peer: OttlaPeer) -> None:
    """Until the process that counts has looked for records, and found none, for some time."""
    deadline = time.monotonic() + REST_WITHIN_S
    while time.monotonic() < deadline:
        before = _counter_cpu_seconds(peer)
        looks = [_wants_to_run(peer)]
        for _ in range(REST_LOOKS):
            time.sleep(REST_S / REST_LOOKS)
            looks.append(_wants_to_run(peer))
        # One that waits for a core takes no time either; one that only looks for records is seen at it once at most.
        if _counter_cpu_seconds(peer) - before <= REST_CPU_S and looks.count(True) <= 1:
            return
    raise TimeoutError("the process that counts is not at rest")


def _wants_to_run(peer: OttlaPeer) -> bool:
    pid = _counter_pid(peer)
    return pid is not None and process_usage.is_runnable(pid)


def _counter_cpu_seconds(peer: OttlaPeer) -> float:
    pid = _counter_pid(peer)
    return 0.0 if pid is None else process_usage.cpu_seconds(pid)


def _counter_pid(peer: OttlaPeer) -> int | None:
    """The broker's child that counts."""
    for children in Path(f"/proc/{peer.process.pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            if b"ottla.audit.counter_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    return None


def table(observed: Observed) -> str:
    headings = ["load", "broker µs/request", "with audit.enable", "counting µs/request", "counting MB"]
    rows = [
        [
            shape,
            number(observed.least(shape, PLAIN, BROKER)),
            number(observed.least(shape, AUDITED, BROKER)),
            number(observed.least(shape, AUDITED, COUNTER)),
            number(observed.median(shape, AUDITED, COUNTER_MB)),
        ]
        for shape in observed.scenarios()
    ]
    note = (
        f"Processor time for each produce request: the 10th percentile of {LOADS} equal loads in each round, until all "
        "is counted. bN: records of 200 B in a batch; fN: requests in flight; pN: partitions."
    )
    return f"{note}\n\n{markdown_table(headings, rows)}"


STUDY: Final = Study(
    name="audit",
    summary="what audit.enable costs the broker, and the process that counts",
    parts=(),
    peers=tuple(SETTINGS),
    rounds=5,
    run=run,
    table=table,
)
