"""`ottla user`: users are added on a plain listener, and log in on another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.client.admin.access import describe_users
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.command_line import Done, ottla


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


def ottla_user(
    broker: RunningBroker, *arguments: str, stdin: str = "", status: int = 0, environment: Mapping[str, str] = {}
) -> Done:
    verb = ("user", *arguments, "--bootstrap-server", broker.bootstrap)
    return ottla(*verb, stdin=stdin, status=status, environment=environment)


def users(broker: RunningBroker) -> dict[str, list[tuple[str, int]]]:
    with Cluster(broker.bootstrap) as cluster:
        found = describe_users(cluster)
    return {name: [(str(each.mechanism), each.iterations) for each in those] for name, those in found.items()}


def test_users_are_added_listed_and_deleted(broker: RunningBroker, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret of alice\n")
    done = ottla_user(broker, "add", "alice", "--password-file", str(tmp_path / "password"))
    assert done.out == "user alice can log in by SCRAM-SHA-256 and SCRAM-SHA-512\n"
    ottla_user(
        broker,
        "add",
        "bob",
        "--password-file",
        "-",
        "--mechanism",
        "scram-sha-512",
        "--iterations",
        "4096",
        stdin="x\n",
    )
    ottla_user(broker, "add", "c/d", environment={"OTTLA_USER_PASSWORD": "y"})
    both = [("SCRAM-SHA-256", 8_192), ("SCRAM-SHA-512", 8_192)]
    assert users(broker) == {"alice": both, "bob": [("SCRAM-SHA-512", 4_096)], "c/d": both}
    listed = ottla_user(broker, "list").out.splitlines()
    assert listed[0].split() == ["USER", "MECHANISM", "ITERATIONS"]
    assert listed[3].split() == ["bob", "SCRAM-SHA-512", "4096"]
    assert ottla_user(broker, "delete", "c/d").out == "deleted user c/d\n"
    assert set(users(broker)) == {"alice", "bob"}
    assert "secret" not in "".join(broker.log_lines)


def test_mistakes_are_explained(broker: RunningBroker) -> None:
    missing = ottla_user(broker, "delete", "ghost", status=1)
    assert "the user 'ghost' has no SCRAM credentials" in missing.err
    few = ottla_user(broker, "add", "eve", "--iterations", "5", status=1, environment={"OTTLA_USER_PASSWORD": "y"})
    assert "iterations must be 4096 to 16384" in few.err
    silent = ottla_user(broker, "add", "eve", status=1)
    assert "there is no terminal" in silent.err
    assert "--password-file" in silent.err
