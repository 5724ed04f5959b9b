"""`ottla doctor` beside a running broker."""

from __future__ import annotations

import json

import pytest

from ottla.cli.exit_status import FAILED
from ottla.cli.program import run
from ottla.testing.broker import RunningBroker


def findings_of(out: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in out.splitlines()]


def test_doctor_queries_a_running_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with RunningBroker() as broker:
        arguments = ["doctor", "--data-dir", str(broker.data_dir), "--json"]
        assert run([*arguments, "--listen", broker.bootstrap]) == 0
        texts = [each["text"] for each in findings_of(capsys.readouterr().out)]
        assert any(f"is in use by process {broker.pid}" in text for text in texts)
        assert any(text.startswith(f"{broker.bootstrap} answers: cluster ") for text in texts)
        assert f"clients get the address {broker.bootstrap}, and it answers" in texts
        # Another process's port: doctor reports that the broker does not answer there.
        assert run([*arguments, "--listen", "127.0.0.1:1"]) == FAILED
        assert "is it another listener?" in capsys.readouterr().out
        # Without the lock's directory, the port is simply taken.
        assert run(["doctor", "--data-dir", f"{broker.data_dir}-other", "--listen", broker.bootstrap]) == FAILED
        assert f"cannot listen on {broker.bootstrap}" in capsys.readouterr().out
