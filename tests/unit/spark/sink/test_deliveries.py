"""What a driver does with a batch, over every crash of it, every moment of a second driver, and every time-out."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from ottla.spark.sink.deliveries import (
    Delivery,
    DeliveryRun,
    NotDelivered,
    Step,
    from_json,
    is_delivered,
    to_json,
)

ROWS = 2
BATCHES = [Delivery(0, ROWS), Delivery(1, ROWS)]


class Refused(Exception):
    """A call of a fenced producer, or one outside of a transaction."""


@dataclass
class Transaction:
    rows: list[tuple[int, int]] = field(default_factory=list)
    delivery: Delivery | None = None


@dataclass
class Coordinator:
    """The query's transactional id, and what readers of committed records see of its topics."""

    epoch: int = 0
    transaction: Transaction | None = None
    # It is committed, and its markers are not written yet.
    prepared: Transaction | None = None
    rows: list[tuple[int, int]] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    def init(self) -> int:
        self.transaction = None
        self.complete()
        self.epoch += 1
        return self.epoch

    def write(self, epoch: int, rows: Iterable[tuple[int, int]], delivery: Delivery | None = None) -> None:
        self._check(epoch)
        self.transaction = self.transaction or Transaction()
        self.transaction.rows += rows
        self.transaction.delivery = delivery or self.transaction.delivery

    def commit(self, epoch: int) -> None:
        self._check(epoch)
        if self.transaction is None:
            raise Refused
        self.prepared, self.transaction = self.transaction, None

    def complete(self) -> None:
        if self.prepared is not None:
            assert self.prepared.delivery is not None
            self.rows += self.prepared.rows
            self.deliveries.append(self.prepared.delivery)
            self.prepared = None

    def time_out(self) -> None:
        """The coordinator aborts what is open, and fences its producer."""
        self.transaction = None
        self.epoch += 1

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch or self.prepared is not None:
            raise Refused


class Driver:
    """Runs batches, one action after the other; each action is one request with its effect."""

    def __init__(self, batches: Iterable[Delivery], *, reads_first: bool = False) -> None:
        self.batches = list(batches)
        self.run: DeliveryRun | None = None
        self.epoch = 0
        self.has_first_half = False
        self.is_over = not self.batches
        self.error: Exception | None = None
        self.is_repeated: list[bool] = []
        # A version with a bug: it does not take the id over before it reads.
        self.reads_first = reads_first
        self.read_early: Delivery | None = None

    def act(self, coordinator: Coordinator) -> None:
        try:
            self._act(coordinator)
        except (Refused, NotDelivered) as error:
            self.error = error
            self.is_over = True

    def _act(self, coordinator: Coordinator) -> None:
        if self.run is None:
            self.run = DeliveryRun(self.batches.pop(0))
            if self.reads_first:
                self.read_early = last_of(coordinator)
                return
        run = self.run
        if run.step is Step.TAKE_OVER:
            self.epoch = coordinator.init()
            run.on_taken_over()
        elif run.step is Step.READ_LAST:
            run.on_last(self.read_early if self.reads_first else last_of(coordinator))
        elif run.step is Step.WRITE and not self.has_first_half:
            coordinator.write(self.epoch, [(run.delivery.batch_id, 0)])
            self.has_first_half = True
        elif run.step is Step.WRITE:
            coordinator.write(self.epoch, [(run.delivery.batch_id, 1)], run.delivery)
            self.has_first_half = False
            run.on_written()
        elif run.step is Step.COMMIT:
            coordinator.commit(self.epoch)
            run.on_committed()
        if run.step is Step.DONE:
            self.is_repeated.append(run.is_repeated)
            self.run = None
            self.is_over = not self.batches


def last_of(coordinator: Coordinator) -> Delivery | None:
    return coordinator.deliveries[-1] if coordinator.deliveries else None


@dataclass
class World:
    coordinator: Coordinator
    drivers: list[Driver]

    def key(self) -> tuple[object, ...]:
        """Equal where everything that follows is equal; only equality of epochs counts."""
        coordinator = self.coordinator
        transaction = coordinator.transaction
        return (
            None if transaction is None else (tuple(transaction.rows), transaction.delivery),
            None if coordinator.prepared is None else tuple(coordinator.prepared.rows),
            tuple(coordinator.rows),
            tuple(
                (
                    driver.is_over,
                    len(driver.batches),
                    driver.run and (driver.run.step, driver.run.delivery.batch_id),
                    driver.epoch == coordinator.epoch,
                    driver.has_first_half,
                    driver.read_early,
                )
                for driver in self.drivers
            ),
        )

    def next_worlds(self) -> Iterator[World]:
        for index, driver in enumerate(self.drivers):
            if not driver.is_over:
                following = copy.deepcopy(self)
                following.drivers[index].act(following.coordinator)
                yield following
                # Killed: the request before had its effect, with or without its answer.
                following = copy.deepcopy(self)
                following.drivers[index].is_over = True
                yield following
        for event in (Coordinator.time_out, Coordinator.complete):
            following = copy.deepcopy(self)
            event(following.coordinator)
            yield following


def worlds(first: World) -> Iterator[World]:
    known = {first.key()}
    waiting = [first]
    while waiting:
        world = waiting.pop()
        yield world
        for following in world.next_worlds():
            if following.key() not in known:
                known.add(following.key())
                waiting.append(following)


def visible(world: World) -> list[tuple[int, int]]:
    after = copy.deepcopy(world.coordinator)
    after.complete()
    return after.rows


WHOLE = [[(batch, row) for batch in range(count) for row in range(ROWS)] for count in range(len(BATCHES) + 1)]


def test_every_batch_is_written_whole_once_and_in_order_in_every_reachable_state() -> None:
    count = 0
    for world in worlds(World(Coordinator(), [Driver(BATCHES), Driver(BATCHES)])):
        count += 1
        assert visible(world) in WHOLE
    assert count > 1000


def test_a_restart_from_every_reachable_state_writes_what_is_missing_and_nothing_else() -> None:
    for world in worlds(World(Coordinator(), [Driver(BATCHES), Driver(BATCHES[:1])])):
        written = len(visible(world)) // ROWS
        # Spark runs again the last batch that it has started, and that one may be written or not.
        for first in {max(written - 1, 0), min(written, 1)}:
            after = copy.deepcopy(world.coordinator)
            restarted = Driver(BATCHES[first:])
            while not restarted.is_over:
                restarted.act(after)
            after.complete()
            assert restarted.error is None
            assert after.rows == WHOLE[2]
            assert restarted.is_repeated == [batch < written for batch in range(first, 2)]


def test_a_driver_that_was_replaced_writes_nothing_more() -> None:
    for world in worlds(World(Coordinator(), [Driver(BATCHES)])):
        coordinator, former = world.coordinator, world.drivers[0]
        coordinator.init()
        before = visible(world)
        if former.run is not None and former.run.step in (Step.WRITE, Step.COMMIT):
            former.act(coordinator)
            assert isinstance(former.error, Refused)
        assert visible(world) == before


def test_a_batch_would_be_written_twice_if_its_driver_read_before_it_takes_over() -> None:
    drivers = [Driver(BATCHES, reads_first=True), Driver(BATCHES, reads_first=True)]
    assert any(visible(world) not in WHOLE for world in worlds(World(Coordinator(), drivers)))


@pytest.mark.parametrize("batch_id", [0, 7])
def test_a_batch_that_was_written_is_not_written_again(batch_id: int) -> None:
    delivery = Delivery(batch_id, 5)
    assert is_delivered(delivery, delivery, None)


@pytest.mark.parametrize(("batch_id", "last"), [(0, None), (8, Delivery(7, 1))])
def test_a_batch_that_follows_the_last_one_is_written(batch_id: int, last: Delivery | None) -> None:
    assert not is_delivered(Delivery(batch_id, 5), last, None)


@pytest.mark.parametrize(
    ("batch_id", "last", "reason"),
    [
        (7, None, "no earlier batch is known"),
        (7, Delivery(5, 1), "the last that is known is batch 5"),
        (7, Delivery(8, 1), "batch 7 follows batch 8"),
        (0, Delivery(8, 1), "batch 0 follows batch 8"),
        (7, Delivery(7, 4), "batch 7 was written with 4 rows, and has 5"),
    ],
)
def test_what_cannot_be_known_to_be_exact_is_refused(batch_id: int, last: Delivery | None, reason: str) -> None:
    with pytest.raises(NotDelivered, match=reason):
        is_delivered(Delivery(batch_id, 5), last, None)


@pytest.mark.parametrize("last", [None, Delivery(5, 1)])
def test_a_query_that_was_not_exactly_once_is_from_a_batch_that_is_named(last: Delivery | None) -> None:
    assert not is_delivered(Delivery(7, 5), last, 7)
    with pytest.raises(NotDelivered, match="exactlyOnceFromBatch=8"):
        is_delivered(Delivery(8, 5), last, 7)


def test_the_named_batch_is_written_once_too() -> None:
    assert is_delivered(Delivery(7, 5), Delivery(7, 5), 7)


def test_a_run_does_its_steps_in_order() -> None:
    run = DeliveryRun(Delivery(0, 1))
    for step, report in [
        (Step.TAKE_OVER, run.on_taken_over),
        (Step.READ_LAST, lambda: run.on_last(None)),
        (Step.WRITE, run.on_written),
        (Step.COMMIT, run.on_committed),
    ]:
        assert run.step is step
        report()
    assert run.step is Step.DONE
    assert not run.is_repeated


def test_a_run_of_a_batch_that_was_written_ends_after_the_read() -> None:
    run = DeliveryRun(Delivery(3, 1))
    run.on_taken_over()
    run.on_last(Delivery(3, 1))
    assert run.step is Step.DONE
    assert run.is_repeated


def test_a_delivery_is_read_as_it_was_written() -> None:
    assert from_json(to_json(Delivery(12, 34))) == Delivery(12, 34)


@pytest.mark.parametrize("data", [None, b"", b"{}", b"[]", b'{"form": 2, "batch": 1, "rows": 1}', b"\xff"])
def test_a_delivery_of_another_form_is_refused(data: bytes | None) -> None:
    with pytest.raises(NotDelivered, match="cannot be read"):
        from_json(data)
