"""Data directories of an earlier time, put back after all brokers were killed: from a snapshot, or a cloned disk.

Their brokers must refuse them in any order of starts, and be refilled once an operator accepts the copies.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from ottla.cli.cluster.rejoin import command as rejoin
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.checkpoints import read_generation
from ottla.storage.log_files import LOG_SUFFIX
from ottla.testing.broker import BrokerDidNotStart, RunningBroker
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.servability import ALL
from tests.cluster.target import MIN_IN_SYNC, Fault, Target
from tests.eventually import eventually

# The generation moves within ten seconds after records.
MOVED_WITHIN_S: Final = 120
_WRITTEN_MIN: Final = 20


def stale_directories(target: Target, *, count: int, is_same_life: bool) -> str:
    """All others stay complete: no acknowledged record may be lost."""
    cluster = target.cluster
    cluster.wait_until_replicated()
    stale = target.random.sample(list(cluster.brokers.values()), count)
    copies = {broker.node_id: _copied(target, broker, is_same_life=is_same_life) for broker in stale}
    cluster.wait_until_replicated()
    wanted = target.acknowledged_count() + _WRITTEN_MIN
    eventually(target.acknowledged_count, lambda acknowledged: acknowledged >= wanted, within_s=MOVED_WITHIN_S)
    if is_same_life:
        # The first move is in the tree when the second one is in the directory.
        for broker in stale:
            moved = _generation(copies[broker.node_id]) + 2
            eventually(partial(_generation, broker.data_dir), moved.__le__, within_s=MOVED_WITHIN_S)
    cluster.wait_until_replicated()
    brokers = list(cluster.brokers.values())
    with ExitStack() as none_serves:
        none_serves.enter_context(target.servability.suspended(*ALL))
        for broker in brokers:
            broker.pause()
        for broker in brokers:
            broker.kill()
        lacking = {broker.node_id: _put_back(broker, copies[broker.node_id]) for broker in stale}
        order = target.random.sample(brokers, len(brokers))
        for started_count, broker in enumerate(order, 1):
            if broker in stale:
                _refuse_and_accept(target, broker)
            else:
                broker.start()
            if started_count >= MIN_IN_SYNC and any(each not in stale for each in order[:started_count]):
                none_serves.close()
    cluster.wait_until_replicated()
    lacks = ", ".join(f"{node_id} lacked {size_bytes} bytes of logs" for node_id, size_bytes in lacking.items())
    order_text = ", ".join(str(broker.node_id) for broker in order)
    return (
        f"stale directories: {lacks}; started in the order {order_text}, refused, and refilled after `cluster rejoin`"
    )


def _copied(target: Target, broker: RunningBroker, *, is_same_life: bool) -> Path:
    copy = target.cluster.data_dir / f"stale-copy-{broker.node_id}"
    shutil.rmtree(copy, ignore_errors=True)
    if is_same_life:
        # Like a snapshot of the volume at one moment.
        broker.pause()
        try:
            shutil.copytree(broker.data_dir, copy)
        finally:
            broker.resume()
    else:
        broker.kill()
        shutil.copytree(broker.data_dir, copy)
        broker.start()
    return copy


def _put_back(broker: RunningBroker, copy: Path) -> int:
    """Returns how many bytes of its logs the copy lacks.  The directory may be a mount point: its content changes."""
    lacking_bytes = _logs_bytes(broker.data_dir) - _logs_bytes(copy)
    if lacking_bytes <= 0 or _generation(copy) >= _generation(broker.data_dir):
        raise FaultWithoutEffect(f"the copy of broker {broker.node_id} lacks nothing")
    for path in broker.data_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(copy, broker.data_dir, dirs_exist_ok=True)
    shutil.rmtree(copy)
    return lacking_bytes


def _refuse_and_accept(target: Target, broker: RunningBroker) -> None:
    try:
        broker.start()
    except BrokerDidNotStart as error:
        if "is a copy of an earlier time" not in str(error):
            raise
    else:
        target.clients.problems.append(f"broker {broker.node_id} started on a stale copy of its directory")
        return
    accepted = CliRunner().invoke(rejoin, ["--data-dir", str(broker.data_dir)])
    if accepted.exit_code:
        raise FaultWithoutEffect(f"the copy of broker {broker.node_id} was not accepted: {accepted.output}")
    broker.start()


def _generation(directory: Path) -> int:
    return read_generation(PosixDisk(), str(directory))


def _logs_bytes(directory: Path) -> int:
    paths: Sequence[Path] = list(directory.glob(f"*/*{LOG_SUFFIX}"))
    return sum(path.stat().st_size for path in paths)


STALE_DIRECTORY_FAULTS: Final[Mapping[str, Fault]] = {
    "stale-directory": partial(stale_directories, count=1, is_same_life=False),
    "stale-directory-same-life": partial(stale_directories, count=1, is_same_life=True),
    "two-stale-directories": partial(stale_directories, count=2, is_same_life=False),
    "two-stale-directories-same-life": partial(stale_directories, count=2, is_same_life=True),
}
