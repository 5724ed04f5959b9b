"""`ottla audit run --every` beside brokers that are away."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ottla.cli.program import command_of
from ottla.cli.verbs import VERBS
from ottla.client.wire.errors import CallTimedOut, ClientError
from ottla.spark.audit import AuditRun
from ottla.spark.errors import LakeError


class Stopped(Exception):
    """The third pause does not come."""


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[AuditRun | Exception]:
    """What the comparisons to come do, in turn; after the last one the job is stopped."""
    to_come: list[AuditRun | Exception] = []

    def compared(*_: object, **__: object) -> AuditRun:
        found = to_come.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def paused(_: float) -> None:
        if not to_come:
            raise Stopped

    monkeypatch.setattr("ottla.spark.session", lambda *_, **__: None)
    monkeypatch.setattr("ottla.spark.audit.run_audit", compared)
    monkeypatch.setattr("ottla.cli.pipeline.audit.time.sleep", paused)
    return to_come


def run(*more: str) -> list[str]:
    outcome = CliRunner().invoke(
        command_of("audit", VERBS["audit"]), ["run", "-b", "localhost:1", *more], standalone_mode=False
    )
    assert isinstance(outcome.exception, Stopped), outcome.output
    return outcome.output.splitlines()


def test_comparison_that_fails_is_reported_and_tried_again(comparisons: list[AuditRun | Exception]) -> None:
    comparisons += [CallTimedOut("no broker answers"), LakeError("no storage"), AuditRun((), ())]
    failed, other, compared = run("--every", "5m")
    assert failed == "not compared, tried again in 5m: no broker answers"
    assert other.startswith("not compared, tried again in 5m: no storage")
    assert compared == "0 lines, 0 changed; 0 records missing, 0 too many"


def test_comparison_that_is_made_once_fails(comparisons: list[AuditRun | Exception]) -> None:
    comparisons += [CallTimedOut("no broker answers")]
    outcome = CliRunner().invoke(
        command_of("audit", VERBS["audit"]), ["run", "-b", "localhost:1"], standalone_mode=False
    )
    assert isinstance(outcome.exception, ClientError)


def test_topic_that_is_left_out_is_named(comparisons: list[AuditRun | Exception]) -> None:
    comparisons += [AuditRun((), (), {"clicks": "other windows"})]
    outcome = CliRunner().invoke(
        command_of("audit", VERBS["audit"]), ["run", "-b", "localhost:1"], standalone_mode=False
    )
    assert outcome.return_value == 1
    assert "clicks is left out: other windows" in outcome.stderr
