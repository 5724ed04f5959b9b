"""The files of `ottla cluster up --secure`."""

from __future__ import annotations

from pathlib import Path

from ottla.cli.config_file import read_config_file
from ottla.security.member_settings import member_settings
from ottla.testing.cluster_security import ClusterSecurity


def test_a_token_can_be_made_of_the_written_settings(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path / "security")
    security.make_missing()
    for port in (2281, 2282):
        security.write_settings(f"127.0.0.1:{port}/ottla", {**security.settings, "default.replication.factor": "3"})
    assert security.server_properties.stat().st_mode & 0o777 == 0o600
    member = member_settings(
        [(raw.name, raw.text) for raw in read_config_file(security.server_properties)], "127.0.0.1"
    )
    assert member.settings["zookeeper.connect"] == "127.0.0.1:2282/ottla"
    assert member.settings["default.replication.factor"] == "3"
    assert member.principal == "User:broker-127.0.0.1"
    assert set(member.files.values()) == {str(security.ca), str(security.digest), str(security.consumers_digest)}
