"""The faults of a run, and their times: one after another, each of bounded duration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.coordination import generations
from ottla.model.errors import RequestError
from ottla.replication.replica import Role
from tests.simulation.broker import Disk, SimulatedBroker
from tests.simulation.network import TREE
from tests.simulation.scale import SESSION_MS, STUCK_FLUSH_MS

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Faults:
    """Injects the kinds of faults that the plan enables."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._chance = simulation.chance
        self._after = simulation.timeline.after
        kinds: dict[str, Callable[[], None]] = {
            "crash": lambda: self._down(self._any(), is_power_cut=False, longest_ms=2500),
            "power_cut": lambda: self._down(self._any(), is_power_cut=True, longest_ms=2500),
            "power_cut_all": self._power_cut_all,
            "quick_restart": lambda: self._down(self._any(), is_power_cut=self._chance.random() < 0.5, longest_ms=30),
            "pause": lambda: self._pause(0.5 * SESSION_MS),
            "long_pause": lambda: self._pause(3 * SESSION_MS),
            "stop": self._stop,
            "cut_link": lambda: self._cut(self._pair(), is_one_way=False),
            "cut_one_way": lambda: self._cut(self._pair(), is_one_way=True),
            "cut_tree": lambda: self._cut((self._any().node_id, TREE), is_one_way=self._chance.random() < 0.5),
            "swizzle": self._swizzle,
            "expire": lambda: simulation.tree.expire_early(self._any().session),
            "tree_away": self._tree_away,
            "disk_full": lambda: self._disk("is_disk_full"),
            "disk_stuck": lambda: self._disk("is_disk_stuck"),
            "disk_replaced": self._replace_disk,
            "log_failed": self._fail_log,
            "prefer": self._prefer,
            "min_in_sync": self._change_min_in_sync,
            "retention": self._delete_records,
            "shrink": self._shrink,
            "move": self._move,
            "stale_directory": self._copy_directory,
        }
        self._kinds = [kinds[kind] for kind in simulation.plan.fault_kinds]
        self._is_over = False
        self.disks_lost = 0

    def begin(self) -> None:
        plan, network, tree = self._simulation.plan, self._simulation.network, self._simulation.tree
        network.loss, network.duplication, network.slowness = plan.loss, plan.duplication, plan.slowness
        tree.lost_answers, tree.late_requests = plan.lost_answers, plan.late_requests
        tree.lag_changes_max = plan.lag_changes_max
        self._next()

    def _next(self) -> None:
        if self._kinds:
            self._after(self._chance.expovariate(1 / self._simulation.plan.fault_interval_ms), self._strike)

    def _strike(self) -> None:
        if not self._is_over:
            self._chance.choice(self._kinds)()
            self._next()

    def end(self) -> None:
        """Everything is repaired: brokers run, links and disks work."""
        self._is_over = True
        self._simulation.network.heal()
        self._simulation.tree.heal()
        for broker in self._simulation.brokers:
            broker.is_disk_full = broker.is_disk_stuck = broker.gives_way = False
            if broker.is_up and any(not partition.is_usable for partition in broker.partitions):
                broker.crash(is_power_cut=False)
            if not broker.is_up:
                broker.start()
            elif broker.is_paused:
                broker.resume()

    def _any(self) -> SimulatedBroker:
        return self._chance.choice(self._simulation.brokers)

    def _down(self, broker: SimulatedBroker, *, is_power_cut: bool, longest_ms: float) -> None:
        if is_power_cut and self._simulation.plan.is_os_policy and not self._may_lose():
            return
        if broker.is_up:
            broker.crash(is_power_cut=is_power_cut)
            self._after(self._chance.random() * longest_ms, self._start, broker, broker.life)
        elif is_power_cut:
            broker.disk.cut_power(self._chance)

    def _may_lose(self) -> bool:
        """Whether a replica may lose its records now: with bounded losses, when all the others have them."""
        simulation = self._simulation
        return not simulation.plan.bounds_losses or simulation.is_replicated()

    def _start(self, broker: SimulatedBroker, life: int) -> None:
        if broker.life != life:
            return
        if not broker.is_up:
            broker.start()
        elif broker.is_stopping:
            # It was paused during its stop.
            self._after(100, self._start, broker, life)

    def _power_cut_all(self) -> None:
        if self._chance.random() < 0.3:
            for broker in self._simulation.brokers:
                self._down(broker, is_power_cut=True, longest_ms=1500)

    def _pause(self, longest_ms: float) -> None:
        broker = self._any()
        if broker.is_up and not broker.is_paused:
            self._simulation.trace("broker %d: paused", broker.node_id)
            broker.pause()
            self._after(self._chance.random() * longest_ms, self._resume, broker, broker.life)

    def _resume(self, broker: SimulatedBroker, life: int) -> None:
        if broker.is_up and broker.is_paused and broker.life == life:
            self._simulation.trace("broker %d: resumes", broker.node_id)
            broker.resume()

    def _stop(self) -> None:
        broker = self._any()
        if broker.is_up and not broker.is_paused:
            self._simulation.trace("broker %d: is to stop", broker.node_id)
            broker.stop()
            self._after(300 + self._chance.random() * 1500, self._start, broker, broker.life)

    def _pair(self) -> tuple[int, int]:
        first, second = self._chance.sample(self._simulation.brokers, 2)
        return first.node_id, second.node_id

    def _cut(self, pair: tuple[int, int], *, is_one_way: bool) -> None:
        cuts = {pair} if is_one_way else {pair, pair[::-1]}
        if is_one_way and self._chance.random() < 0.5:
            cuts = {pair[::-1]}
        self._simulation.trace("network: cut %s", sorted(cuts))
        self._simulation.network.cuts |= cuts
        self._after(self._chance.random() * 2.5 * SESSION_MS, self._mend, cuts)

    def _mend(self, cuts: set[tuple[int, int]]) -> None:
        self._simulation.network.cuts -= cuts

    def _swizzle(self) -> None:
        """Stop the links one after the other, and resume them in another order."""
        nodes = [broker.node_id for broker in self._simulation.brokers] + [TREE]
        links = [(a, b) for a in nodes for b in nodes if a != b and self._chance.random() < 0.6]
        self._chance.shuffle(links)
        for position, link in enumerate(links):
            self._after(position * 20, self._clog, link)
        for position, link in enumerate(self._chance.sample(links, len(links))):
            self._after(len(links) * 20 + position * 30, self._mend, {link})

    def _clog(self, link: tuple[int, int]) -> None:
        if not self._is_over:
            self._simulation.network.cuts.add(link)

    def _tree_away(self) -> None:
        tree = self._simulation.tree
        if not tree.is_away:
            tree.is_away = True
            self._after(self._chance.random() * 1.5 * SESSION_MS, self._tree_back)

    def _tree_back(self) -> None:
        self._simulation.tree.is_away = False

    def _disk(self, fault: str) -> None:
        broker = self._any()
        if broker.is_up:
            self._simulation.trace("broker %d: %s", broker.node_id, fault)
            setattr(broker, fault, True)
            self._after(self._chance.random() * 1500, self._disk_works, broker, fault)
            self._after(STUCK_FLUSH_MS, self._give_way, broker, broker.life, fault)

    def _give_way(self, broker: SimulatedBroker, life: int, fault: str) -> None:
        if (
            getattr(broker, fault)
            and broker.life == life
            and broker.is_up
            and not broker.is_paused
            and self._may_give_way()
        ):
            broker.gives_way = True
            broker.look_again()

    def _may_give_way(self) -> bool:
        """A member leaves the sets for one that may have lost its records unnoticed."""
        return not self._simulation.plan.may_lose_disks or self._may_lose()

    def _disk_works(self, broker: SimulatedBroker, fault: str) -> None:
        setattr(broker, fault, False)
        broker.gives_way = False
        for partition in broker.partitions:
            partition.flush()
        if broker.is_up and not broker.is_paused:
            broker.look_again()

    def _replace_disk(self) -> None:
        broker = self._any()
        if not self._may_lose():
            return
        if broker.is_up:
            broker.crash(is_power_cut=True)
            self._after(self._chance.random() * 1500, self._start, broker, broker.life)
        broker.replace_disk()
        self.disks_lost += 1

    def _copy_directory(self) -> None:
        """A copy to put back later, in the same life or another one."""
        broker = self._any()
        self._after(200 + self._chance.random() * 3000, self._put_back, broker, broker.disk.copy())

    def _put_back(self, broker: SimulatedBroker, copy: Disk) -> None:
        """Only a copy from before the last move: records that were stored after it are the remaining window."""
        seen, _ = self._simulation.tree.generations.get(broker.node_id, (None, 0))
        if self._is_over or not generations.is_stale(copy.held(), seen) or not self._may_lose():
            return
        if self._chance.random() < 0.6:
            for each in self._simulation.brokers:
                self._down(each, is_power_cut=False, longest_ms=1500)
        else:
            self._down(broker, is_power_cut=False, longest_ms=1500)
        self._simulation.trace("broker %d: a copy of its directory is put back: %s", broker.node_id, copy.held())
        broker.disk = copy
        self.disks_lost += 1

    def _fail_log(self) -> None:
        broker = self._any()
        if not self._may_give_way():
            return
        if broker.is_up and broker.partitions and not broker.is_paused:
            partition = self._chance.choice(broker.partitions)
            self._simulation.trace("broker %d: the log of partition %d fails", broker.node_id, partition.index)
            partition.fail()
            broker.look_again()

    def _prefer(self) -> None:
        broker = self._any()
        if broker.is_up and not broker.is_paused:
            broker.prefer()

    def _shrink(self) -> None:
        """A broker writes a change before the leader does: another process is gone, or is about to stop."""
        broker = self._any()
        if broker.is_up and not broker.is_paused:
            broker.shrink(self._any().node_id)

    def _move(self) -> None:
        """Move a partition to an equal number of other brokers, or cancel its move."""
        simulation, chance = self._simulation, self._chance
        now = simulation.tree.now
        node = chance.choice(now.partitions)
        nodes = chance.sample([broker.node_id for broker in simulation.brokers], simulation.plan.replicas_count)
        target = None if node.is_moving and chance.random() < 0.3 else nodes
        try:
            after = simulation.kinds.requested(
                node, target, now.live, lambda each: min(now.min_in_sync, each.replicas_count_min)
            )
        except RequestError:
            return
        if after is not None:
            simulation.trace("operator: partition %d moves to %s, %s", node.partition_index, after.replicas, after.move)
            simulation.tree.change_state(node.partition_index, after.state, 0, after)

    def _change_min_in_sync(self) -> None:
        min_in_sync = self._chance.choice((1, 2, 2, 3))
        self._simulation.trace("operator: min.insync.replicas=%d", min_in_sync)
        self._simulation.tree.change_min_in_sync(min_in_sync)

    def _delete_records(self) -> None:
        broker = self._any()
        for partition in broker.partitions:
            if partition.replica.role is Role.LEADER and not broker.is_paused:
                log = partition.log
                span = partition.replica.high_watermark - log.log_start_offset
                log.delete_records_before(log.log_start_offset + int(self._chance.random() * (span + 1)))
