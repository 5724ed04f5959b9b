"""pytest-xdist's scheduler by scope, with worker groups as scopes."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.worker_groups import group_of, start_rank


class GroupScheduler(LoadScopeScheduling):  # type: ignore[misc]  # the library has no types
    """Starts groups by their rank, and gives a worker its next group as late as it can."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=start_rank), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        # A worker starts a test when it knows the next one, so it needs one test beyond the one that it runs.  xdist
        # assigns a third in advance, and a group that waits at one worker is not available to another.
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
