from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from ottla.observe.events import EventFormatter, fields, start_logging


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
