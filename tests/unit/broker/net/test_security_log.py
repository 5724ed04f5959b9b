from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ottla.broker.net.access import Denial
from ottla.broker.net.security_log import KINDS_MAX, REPEATED_AFTER_MS, Change, LineFile, SecurityLog
from ottla.model.errors import ConfigError
from ottla.protocol.api import ApiKey
from ottla.security.acl import Operation, ResourceType
from ottla.testing.fake_clock import FakeClock

DENIAL = Denial(
    "User:eve", "192.0.2.1", "SASL_SSL", "app", ApiKey.PRODUCE, Operation.WRITE, ResourceType.TOPIC, "orders", "no rule"
)


class Written:
    """A security log and the lines that it wrote."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.lines: list[dict[str, object]] = []
        self.log = SecurityLog(self.clock, lambda line: self.lines.append(json.loads(line)))


def test_a_refusal_is_a_line_with_who_from_where_what_and_why() -> None:
    written = Written()
    written.log.denied(DENIAL)
    (line,) = written.lines
    assert line.pop("time")
    assert line == {
        "event": "denied",
        "principal": "User:eve",
        "peer": "192.0.2.1",
        "listener": "SASL_SSL",
        "client_id": "app",
        "api": "PRODUCE",
        "operation": "WRITE",
        "resource": "TOPIC:orders",
        "rule": "no rule",
    }


def test_repeats_of_a_refusal_are_counted() -> None:
    written = Written()
    for _ in range(5):
        written.log.denied(DENIAL)
    assert len(written.lines) == 1
    written.clock.advance(REPEATED_AFTER_MS)
    written.log.denied(DENIAL)
    assert [line.get("repeats_count") for line in written.lines] == [None, 4]


def test_refusals_of_ever_new_resources_are_bounded() -> None:
    written = Written()
    for number in range(KINDS_MAX + 500):
        written.log.denied(DENIAL._replace(resource=f"t{number}"))
    assert len(written.lines) == KINDS_MAX + 1
    written.clock.advance(1_000)
    written.log.denied(DENIAL._replace(resource="another"))
    assert written.lines[-1]["repeats_count"] == 499
    written.clock.advance(REPEATED_AFTER_MS)
    written.log.denied(DENIAL._replace(resource="later"))
    assert written.lines[-1]["resource"] == "TOPIC:later"


def test_what_a_client_sends_stays_within_its_line() -> None:
    lines: list[str] = []
    log = SecurityLog(FakeClock(), lines.append)
    log.denied(DENIAL._replace(client_id='x"}\n{"event": "forged', resource="\u2028\r\n" + "y" * 5_000))
    (line,) = lines
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert len(line) < 3_000
    assert json.loads(line)["client_id"] == 'x"}\n{"event": "forged'


def test_a_change_has_its_first_resources_and_their_errors() -> None:
    written = Written()
    outcomes = [(f"TOPIC:t{number}", 36 if number == 1 else 0) for number in range(30)]
    written.log.changed(Change("User:admin", "192.0.2.1", "PLAINTEXT", None, ApiKey.CREATE_TOPICS, outcomes))
    (line,) = written.lines
    assert line["event"] == "changed"
    resources = line["resources"]
    assert isinstance(resources, list)
    assert resources[:2] == ["TOPIC:t0", "TOPIC:t1=36"]
    assert len(resources) == 20
    assert line["has_more"] is True


def test_the_file_is_readable_by_its_owner_only_and_survives_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "security.log"
    file = LineFile(str(path))
    file.write("one")
    assert path.stat().st_mode & 0o777 == 0o600
    path.rename(tmp_path / "security.log.1")
    file.write("two")
    file.close()
    assert ((tmp_path / "security.log.1").read_text(), path.read_text()) == ("one\n", "two\n")


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "security.log"
    path.touch()
    os.chmod(path, 0o644)
    with pytest.raises(ConfigError, match="mode 644") as refused:
        LineFile(str(path))
    assert "chmod 600" in (refused.value.hint or "")


def test_a_file_that_cannot_be_created_is_a_setting_to_correct(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"security\.log\.file"):
        LineFile(str(tmp_path / "absent" / "security.log"))
