from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from ottla.observe.events import EventFormatter, FrequentEvents, fields, frequent, start_logging


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    stream = io.StringIO()
    start_logging("info", stream)
    yield stream
    root.handlers[:], level = before
    root.setLevel(level)


def test_event_is_one_line_with_time_level_name_and_facts(output: io.StringIO) -> None:
    logging.getLogger("ottla.storage.log.log").info(
        "segment.rolled", extra=fields(partition="orders-3", base_offset=71)
    )
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO segment\.rolled partition=orders-3 base_offset=71\n",
        output.getvalue(),
    )


def test_time_is_utc_with_milliseconds() -> None:
    record = logging.makeLogRecord({"msg": "broker.ready", "levelname": "INFO", "created": 1_767_225_600.0421})
    assert EventFormatter().format(record) == "2026-01-01T00:00:00.042Z INFO broker.ready"


def test_event_below_the_level_is_not_written(output: io.StringIO) -> None:
    logging.getLogger("ottla.x").debug("request.read", extra=fields(api=1))
    assert output.getvalue() == ""


def test_fact_from_a_peer_cannot_forge_a_line(output: io.StringIO) -> None:
    logging.getLogger("ottla.x").warning("frame.refused", extra=fields(client_id="x\n2026 INFO broker.ready\x1b[0m"))
    assert output.getvalue().count("\n") == 1
    assert "\x1b" not in output.getvalue()


def test_sentence_of_a_library_becomes_an_event_of_that_library(output: io.StringIO) -> None:
    logging.getLogger("asyncio").warning("Executing %s took\n%s seconds", "<Task>", 0.5)
    assert output.getvalue().endswith('WARNING asyncio.said text="Executing <Task> took\\n0.5 seconds"\n')


def test_traceback_is_indented_so_that_no_line_of_it_passes_for_an_event(output: io.StringIO) -> None:
    try:
        raise ValueError("bad\n2026-01-01T00:00:00.000Z INFO broker.ready")
    except ValueError:
        logging.getLogger("ottla.x").exception("handler.failed", extra=fields(api="Fetch"))
    first, *rest = output.getvalue().splitlines()
    assert first.endswith("ERROR handler.failed api=Fetch")
    assert rest
    assert all(line.startswith("    | ") for line in rest)


def test_lines_of_one_of_several_processes_end_with_its_own_facts() -> None:
    record = logging.makeLogRecord({"msg": "segment.rolled", "levelname": "INFO", **fields(base_offset=7)})
    assert EventFormatter({"broker": 2}).format(record).endswith("INFO segment.rolled base_offset=7 broker=2")


def frequent_lines(*created_s: float) -> list[str]:
    """The lines of `request.refused` at these times."""
    only = FrequentEvents()
    lines = []
    for number, each_s in enumerate(created_s):
        facts = frequent(number=number)
        record = logging.makeLogRecord({"msg": "request.refused", "created": each_s, **facts})
        if only.filter(record):
            line = EventFormatter().format(record)
            lines.append(line[line.index("request.refused") :])
    return lines


def test_frequent_events_are_a_line_a_second_with_the_count_of_those_left_out() -> None:
    assert frequent_lines(100.0, 100.1, 100.9, 101.0, 101.5, 103.0) == [
        "request.refused number=0",
        "request.refused number=3 left_out_count=2",
        "request.refused number=5 left_out_count=1",
    ]


def test_frequent_event_passes_after_the_clock_was_set_back() -> None:
    assert len(frequent_lines(100.0, 50.0)) == 2


def test_frequent_events_of_one_name_leave_room_to_those_of_others() -> None:
    only = FrequentEvents()
    records = [logging.makeLogRecord({"msg": name, "created": 1.0, **frequent()}) for name in ("a.b", "c.d")]
    assert [only.filter(record) for record in records] == [True, True]


def test_other_events_all_pass() -> None:
    only = FrequentEvents()
    records = [logging.makeLogRecord({"msg": "log.offline", "created": 1.0, **fields()}) for _ in range(3)]
    assert all(only.filter(record) for record in records)
