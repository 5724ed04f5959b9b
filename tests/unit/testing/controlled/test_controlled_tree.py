"""The tree of a controlled cluster is guarded while it is paused, and waited for when it was away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ottla.coordination.local import READY_EVENT
from ottla.testing import ControlledCluster
from ottla.testing.controlled import cluster as cluster_module
from ottla.testing.controlled.cluster import ControlledTree


class QuickTree(ControlledTree):
    """A process that is ready at once, and ends with its input."""

    @property
    def command_line(self) -> Sequence[str]:
        return ["/bin/sh", "-c", f"echo {READY_EVENT}; exec cat"]


class QuickCluster(ControlledCluster):
    """Without brokers."""

    def __init__(self) -> None:
        super().__init__(1)
        self.waits_count = 0

    def _new_tree(self, own_group: bool) -> ControlledTree:
        return QuickTree(self.data_dir)

    def _wait_until_all_know_each_other(self) -> None:
        self.waits_count += 1


class Guard:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_ended = False

    def end(self) -> None:
        self.is_ended = True


@pytest.fixture
def guards(monkeypatch: pytest.MonkeyPatch) -> list[Guard]:
    guards: list[Guard] = []

    def guard(pid: int) -> Guard:
        guards.append(Guard(pid))
        return guards[-1]

    monkeypatch.setattr(cluster_module, "PauseGuard", guard)
    return guards


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    cluster = QuickCluster()
    try:
        cluster.tree.start()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize("end", [ControlledTree.stop, ControlledTree.kill])
def test_tree_that_is_paused_again_after_its_end_is_guarded_again(
    tmp_path: Path, guards: list[Guard], end: Callable[[ControlledTree], None]
) -> None:
    with QuickTree(tmp_path) as tree:
        tree.pause()
        end(tree)
        assert [guard.is_ended for guard in guards] == [True]
        tree.start()
        tree.pause()
        assert [guard.is_ended for guard in guards] == [True, False]
        assert guards[-1].pid == tree.pid
    assert guards[-1].is_ended


def test_restore_waits_for_the_brokers_when_the_tree_alone_was_away(cluster: QuickCluster, guards: list[Guard]) -> None:
    cluster.restore()
    assert cluster.waits_count == 0
    cluster.tree.pause()
    cluster.restore()
    assert cluster.waits_count == 1
    cluster.tree.kill()
    cluster.restore()
    assert cluster.waits_count == 2
    assert cluster.tree.is_running
    cluster.restore()
    assert cluster.waits_count == 2
