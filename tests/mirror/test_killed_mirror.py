"""A mirror is killed at any time: the target has the records of the source, once and in order."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from operator import lt
from typing import Final

from ottla.mirror import Mirror, MirrorOptions
from ottla.testing import ControlledBroker
from tests.eventually import eventually
from tests.mirror.mirrored import MirrorProcess, Writer, content_of, copied_count, mirror_process

PARTITIONS: Final = 3
KILLS: Final = int(os.environ.get("OTTLA_MIRROR_KILLS", "6"))
SESSION_MS: Final = 500
# Between two batches of a partition: so little load that a mirror keeps pace on a busy machine, where each wait for it
# would otherwise be longer than the one before.
PAUSE_S: Final = 0.01
PAUSE_BESIDE_TWO_MIRRORS_S: Final = 0.1
FLAGS: Final = (
    "--progress-interval-ms",
    "300",
    "--session-timeout-ms",
    str(SESSION_MS),
    "--topics",
    r".*clicks\.all",
    "--refresh-interval-ms",
    "500",
)


def test_killed_mirror_continues_without_loss_and_without_a_duplicate(
    record_property: Callable[[str, object], None],
) -> None:
    seed = int(os.environ.get("OTTLA_MIRROR_SEED", str(random.SystemRandom().randrange(1 << 30))))
    chance = random.Random(seed)
    record_property("simulation", f"kills of a mirror, OTTLA_MIRROR_SEED={seed}")
    settings = {"group.min.session.timeout.ms": "100"}
    with ControlledBroker() as live, ControlledBroker(settings) as offline, live.namespace("clicks") as namespace:
        topic = namespace.topic("clicks.all", partitions=PARTITIONS)
        with Writer(live.bootstrap, str(topic), PARTITIONS, pause_s=PAUSE_S) as writer:
            copied = 0
            for _ in range(KILLS):
                process = MirrorProcess(live.bootstrap, offline.bootstrap, *FLAGS)
                try:
                    copied = eventually(
                        partial(copied_count, offline.bootstrap, topic, PARTITIONS), partial(lt, copied)
                    )
                    # A random sleep instead of a wait for a state: the kill must come at any time.
                    time.sleep(chance.uniform(0, 0.6))
                finally:
                    said = process.kill()
                assert "Traceback" not in said, said
        options = MirrorOptions(session_timeout_ms=SESSION_MS)
        report = Mirror(live.bootstrap, offline.bootstrap, options).run(once=True)
        assert not report.stuck, report
        expected, found = content_of(live.bootstrap, topic), content_of(offline.bootstrap, topic)
        assert {number: len(rows) for number, rows in found.items()} == {
            number: len(rows) for number, rows in expected.items()
        }
        assert found == expected, f"seed {seed}"
        counted = [each.counts for each in report.partitions]
        assert sum(each.records for each in counted) == writer.records_count
        assert [each.duplicate_records + each.foreign_records for each in counted] == [0] * PARTITIONS


def test_mirror_that_was_stopped_past_its_session_gives_way_and_duplicates_are_counted() -> None:
    settings = {"group.min.session.timeout.ms": "100"}
    with ControlledBroker() as live, ControlledBroker(settings) as offline, live.namespace("clicks") as namespace:
        topic = namespace.topic("clicks.all", partitions=PARTITIONS)
        copied = partial(copied_count, offline.bootstrap, topic, PARTITIONS)
        with (
            Writer(live.bootstrap, str(topic), PARTITIONS, pause_s=PAUSE_BESIDE_TWO_MIRRORS_S) as writer,
            mirror_process(live.bootstrap, offline.bootstrap, *FLAGS) as first,
        ):
            eventually(copied, partial(lt, 200))
            first.suspend()
            with mirror_process(live.bootstrap, offline.bootstrap, *FLAGS) as second:
                # No mirror copied while the first one still had its lease.
                eventually(copied, partial(lt, writer.records_count))
                first.resume()
                eventually(lambda: "taken over" in first.read_said().readline())
                eventually(copied, partial(lt, writer.records_count))
                assert second.stop()["stuck"] == {}
            # The first one takes over again.
            eventually(copied, partial(lt, writer.records_count))
            assert first.stop()["stuck"] == {}
        report = Mirror(live.bootstrap, offline.bootstrap, MirrorOptions(session_timeout_ms=SESSION_MS)).run(once=True)
        assert not report.stuck, report
        expected, found = content_of(live.bootstrap, topic), content_of(offline.bootstrap, topic)
        for number, rows in expected.items():
            counts = next(each.counts for each in report.partitions if each.partition == number)
            assert set(found[number]) == set(rows), "nothing is lost"
            assert (len(found[number]) - len(rows), 0) == (counts.duplicate_records, counts.foreign_records)
