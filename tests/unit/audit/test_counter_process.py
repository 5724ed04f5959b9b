from __future__ import annotations

from pathlib import Path

from ottla.audit.counter_process import CountingSettings, security_of_file
from ottla.client.wire.security.settings import PLAINTEXT
from ottla.security.protocol import SecurityProtocol


def test_counting_process_gets_a_file_of_its_login_and_no_secret_as_an_argument(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=audit\nsasl.password=wa1tForIt\n"
    )
    argument = CountingSettings("localhost:9093", 1, 600_000, 10_000, command_config=str(file)).to_json()
    assert "wa1tForIt" not in argument
    security = security_of_file(CountingSettings.from_json(argument).command_config)
    assert security.protocol is SecurityProtocol.SASL_SSL
    assert security.login is not None


def test_counting_process_without_a_file_connects_in_plain_text() -> None:
    assert security_of_file(CountingSettings("localhost:9092", 1, 600_000, 10_000).command_config) == PLAINTEXT
