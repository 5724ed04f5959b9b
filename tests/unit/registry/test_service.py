"""Several registries over one topic: one writes at a time, and nothing that was acknowledged is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from ottla.registry import decisions
from ottla.registry.checks import Answers
from ottla.registry.decisions import RegistryDecision
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.schema import SubjectVersion
from ottla.registry.service import AnotherWrites, Registry, SharedRead
from ottla.registry.state import RegistryState
from tests.unit.registry.small_registry import (
    DirectCheckers,
    MemoryLog,
    everything,
    optional,
    record,
    registry_over,
    schema,
)

ONE = record("a")
TWO = record("a", optional("b"))


def register(registry: Registry, subject: str, text: str) -> SubjectVersion:
    def attempt(answers: Answers) -> RegistryDecision:
        return registry.change(lambda state: decisions.register(state, subject, schema(text), answers))

    found: SubjectVersion = registry.answered(attempt).answer
    return found


def versions(registry: Registry, subject: str) -> list[str]:
    return registry.read(lambda state: [each.schema.text for each in state.versions(subject)])


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def first(log: MemoryLog) -> Registry:
    registry = registry_over(log, "http://first")
    registry.claim()
    return registry


@pytest.fixture
def second(log: MemoryLog) -> Registry:
    return registry_over(log, "http://second")


def test_registry_that_starts_has_what_was_stored_before(log: MemoryLog, first: Registry, second: Registry) -> None:
    made = register(first, "orders", ONE)
    second.claim()
    assert register(second, "orders", ONE) == made
    assert register(second, "orders", TWO).id == made.id + 1


def test_registry_that_did_not_claim_says_who_writes_and_reads_all_the_same(first: Registry, second: Registry) -> None:
    with pytest.raises(AnotherWrites) as raised:
        register(second, "orders", ONE)
    assert raised.value.url == "http://first"
    register(first, "orders", ONE)
    assert len(versions(second, "orders")) == 1


def test_newest_claim_wins(first: Registry, second: Registry) -> None:
    second.claim()
    with pytest.raises(AnotherWrites) as raised:
        register(first, "orders", ONE)
    assert raised.value.url == "http://second"
    register(second, "orders", ONE)


def test_record_of_an_overtaken_writer_does_not_count(log: MemoryLog, first: Registry, second: Registry) -> None:
    """The first has decided, and the second takes over and registers something else before the record is stored."""

    def meanwhile() -> None:
        second.claim()
        register(second, "orders", TWO)

    log.before_append = meanwhile
    with pytest.raises(AnotherWrites):
        register(first, "orders", ONE)
    assert versions(second, "orders") == versions(first, "orders")
    assert len(versions(second, "orders")) == 1
    assert log.state().versions("orders")[0].schema.text.count("name") == 3


def test_record_that_was_overtaken_survives_no_compaction(log: MemoryLog, first: Registry, second: Registry) -> None:
    def meanwhile() -> None:
        second.claim()
        register(second, "orders", TWO)

    log.before_append = meanwhile
    with pytest.raises(AnotherWrites):
        register(first, "orders", ONE)
    # Compaction would keep the record of the first, which has the same key.
    expected = versions(second, "orders")
    register(second, "returns", ONE)
    log.compact()
    assert [each.schema.text for each in log.state().versions("orders")] == expected


def test_registry_that_takes_over_corrects_what_the_one_before_left(
    log: MemoryLog, first: Registry, second: Registry
) -> None:
    def meanwhile() -> None:
        second.claim()
        register(second, "orders", TWO)

    log.before_append = meanwhile
    with pytest.raises(AnotherWrites):
        register(first, "orders", ONE)
    expected = versions(second, "orders")
    registry_over(log, "http://third").claim()
    log.compact()
    assert [each.schema.text for each in log.state().versions("orders")] == expected


@pytest.mark.parametrize("by_version", [False, True])
def test_id_whose_schema_was_deleted_for_good_is_not_given_again_after_compaction_and_a_restart(
    log: MemoryLog, first: Registry, by_version: bool
) -> None:
    register(first, "orders", ONE)
    gone = register(first, "returns", TWO)
    for permanent in (False, True):
        delete: Callable[[RegistryState], RegistryDecision]
        if by_version:
            delete = partial(decisions.delete_version, subject="returns", number=1, permanent=permanent)
        else:
            delete = partial(decisions.delete_subject, subject="returns", permanent=permanent)
        first.change(delete)
    log.compact()
    restarted = registry_over(log, "http://first")
    restarted.claim()
    assert restarted.read(lambda state: state.subjects(deleted=True)) == ["orders"]
    assert register(restarted, "payments", record("z")).id == gone.id + 1


def test_registry_that_is_overtaken_before_it_forgets_an_id_deletes_nothing(
    log: MemoryLog, first: Registry, second: Registry
) -> None:
    made = register(first, "orders", ONE)
    first.change(lambda state: decisions.delete_subject(state, "orders", permanent=False))

    def between_claim_and_deletion() -> None:
        log.before_append = second.claim

    log.before_append = between_claim_and_deletion
    with pytest.raises(AnotherWrites):
        first.change(lambda state: decisions.delete_subject(state, "orders", permanent=True))
    assert second.read(lambda state: state.versions("orders", deleted=True))[0].id == made.id


def test_question_changes_nothing(log: MemoryLog, first: Registry) -> None:
    register(first, "orders", ONE)
    before, stored = everything(log.state()), len(log.records)
    assert first.change(lambda state: RegistryDecision(len(state.subjects()))).answer == 1
    assert everything(log.state()) == before
    assert len(log.records) == stored


def test_known_schemas_do_not_wait_for_those_that_wait_for_the_topic(log: MemoryLog, first: Registry) -> None:
    made = register(first, "orders", ONE)
    is_reading, may_end = threading.Event(), threading.Event()

    def read(state: RegistryState) -> None:
        is_reading.set()
        may_end.wait()

    log.read = read  # type: ignore[method-assign]
    waiting = threading.Thread(target=lambda: first.read(lambda state: None))
    waiting.start()
    is_reading.wait()
    try:
        assert first.read_known(lambda state: state.schema(made.id)) == made.schema
    finally:
        may_end.set()
        waiting.join()


def test_reads_wait_neither_for_a_check_nor_for_a_change(log: MemoryLog) -> None:
    checkers = DirectCheckers()
    registry = registry_over(log, checkers=checkers)
    registry.claim()
    register(registry, "orders", ONE)
    seen: list[list[str]] = []
    checkers.before_check = lambda: seen.append(versions(registry, "orders"))
    log.before_append = lambda: seen.append(versions(registry, "orders"))
    register(registry, "orders", TWO)
    assert [len(each) for each in seen] == [1, 1]


def test_change_is_decided_again_when_the_subject_changed_during_its_check(log: MemoryLog) -> None:
    checkers = DirectCheckers()
    registry = registry_over(log, checkers=checkers)
    registry.claim()
    register(registry, "orders", ONE)

    def other_change() -> None:
        register(registry, "orders", TWO)

    checkers.before_check = other_change
    with pytest.raises(RegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE at /fields/2"):
        register(registry, "orders", record("a", optional("b"), "c"))
    assert len(versions(registry, "orders")) == 2


def test_passed_on_request_costs_no_check_here(first: Registry, log: MemoryLog) -> None:
    checkers = DirectCheckers()
    second = registry_over(log, "http://second", checkers)
    with pytest.raises(AnotherWrites):
        register(second, "orders", ONE)
    assert checkers.done == []


def test_what_is_appended_has_the_claim_of_its_decision(log: MemoryLog, first: Registry, second: Registry) -> None:
    """A read may find that another took over between the decision and the append."""

    def meanwhile() -> None:
        second.claim()
        first.read(lambda state: None)

    log.before_append = meanwhile
    with pytest.raises(AnotherWrites):
        register(first, "orders", ONE)
    assert versions(second, "orders") == versions(first, "orders") == []


def test_calls_that_wait_for_the_topic_have_one_read_together() -> None:
    is_reading, may_end = threading.Event(), threading.Event()
    runs: list[int] = []

    def read() -> None:
        runs.append(len(runs))
        is_reading.set()
        may_end.wait()

    catch_up = SharedRead(read)
    threads = [threading.Thread(target=catch_up) for _ in range(20)]
    threads[0].start()
    is_reading.wait()
    for thread in threads[1:]:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join()
    # A call that came during the first run needs a later one.
    assert 2 <= len(runs) < len(threads)


def test_failure_of_a_read_is_that_of_all_calls_that_waited_for_it() -> None:
    def read() -> None:
        raise RegistryError(RegistryCode.STORE_ERROR, "the topic is shorter")

    catch_up = SharedRead(read)
    for _ in range(2):
        with pytest.raises(RegistryError, match="the topic is shorter"):
            catch_up()
