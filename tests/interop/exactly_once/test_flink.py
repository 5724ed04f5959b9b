"""Flink's exactly-once sink, in a process that is killed and continues from its last checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import pytest

from tests.interop.exactly_once.killed_program import KilledProgram, flink_program
from tests.interop.exactly_once.topics import Input, Output, create_topics
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.either_broker import BrokerKind, either_broker
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(BROUGHT_WITHIN_S + 600)]

RECORDS: Final = 4_000
PAUSE_S: Final = 0.005
KILLS: Final = 3
RECORDS_PER_KILL: Final = RECORDS // (KILLS + 2)


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
@pytest.mark.parametrize("kind", BrokerKind)
def test_flink_copies_each_record_once_through_kills(kind: BrokerKind, naming: str, tmp_path: Path) -> None:
    try:
        home = flink_program()
    except (PeerUnavailable, KafkaUnavailable) as reason:
        pytest.skip(f"Flink is not available: {reason}")
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    program = KilledProgram(home, "Copy", tmp_path / "flink.log")
    with either_broker(kind, {"group.initial.rebalance.delay.ms": "0"}) as bootstrap, program:
        create_topics(bootstrap, "input", "output")
        arguments = [bootstrap, "input", "output", str(checkpoints), naming]
        program.start(arguments)
        records = threading.Thread(target=send_records, args=(bootstrap,))
        records.start()
        output = Output(bootstrap, "output")
        for kill in range(KILLS):
            output.wait_for((kill + 1) * RECORDS_PER_KILL)
            program.kill()
            program.start([*arguments, str(last_checkpoint(checkpoints))])
        records.join()
        output.wait_for(RECORDS)
        program.kill()
        output.read()
        output.close()
    assert sorted(int(value) for _, value in output.records) == list(range(RECORDS))


def send_records(bootstrap: str) -> None:
    Input(bootstrap, "input").send((str(number) for number in range(RECORDS)), PAUSE_S)


def last_checkpoint(checkpoints: Path) -> Path:
    """The last one that is complete."""
    return max(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns).parent
