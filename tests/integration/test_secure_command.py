"""`ottla secure init`: a broker starts with its files, a client connects with them, and certificates are replaced."""

from __future__ import annotations

import os
import signal
import ssl
import sys
from pathlib import Path

import trustme

from ottla.model.properties import parse_properties
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla, ottla_process
from tests.eventually import eventually


def test_broker_and_client_work_with_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    done = ottla_process("secure", "init", folder, "--host", "127.0.0.1")
    assert f"ottla serve --config {folder / 'server.properties'}" in done.out
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.iterdir()))
    [user] = (folder / "users").read_text().splitlines()
    password = user.partition("=")[2]
    assert len(password) >= 22
    assert password not in done.out + done.err

    given = {name: text for name, text, _ in parse_properties((folder / "server.properties").read_text())}
    settings = {name: text for name, text in given.items() if name not in ("listeners", "advertised.listeners")}
    with RunningBroker(listen="SASL_SSL://127.0.0.1:0", settings=settings) as broker:
        client = ("-b", broker.bootstrap, "--command-config", str(folder / "client.properties"))
        ottla("topic", "create", "secured", *client)
        assert ottla("topic", "list", *client).out.split() == ["secured"]
        ottla("user", "add", "alice", "--password-file", "-", *client, stdin="secret of alice\n")
        assert "alice" in ottla("user", "list", *client).out
        assert password not in "\n".join(broker.log_lines)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("content")
    refused = ottla("secure", "init", str(tmp_path), status=1)
    assert "is not empty" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def certificate_of(broker: RunningBroker) -> str:
    return ssl.get_server_certificate((broker.host, broker.port))


def test_sighup_loads_a_changed_certificate_and_keeps_a_usable_one(tmp_path: Path) -> None:
    keystore = tmp_path / "broker.pem"

    def issue() -> None:
        trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(keystore))

    issue()
    # Without a terminal, whose end is a SIGHUP, too.
    command = ("setsid", sys.executable, "-m", "ottla")
    settings = {"ssl.keystore.location": str(keystore)}
    with RunningBroker(listen="SSL://127.0.0.1:0", settings=settings, command=command) as broker:
        first = certificate_of(broker)
        issue()
        os.kill(broker.pid, signal.SIGHUP)
        second = eventually(lambda: certificate_of(broker), lambda found: found != first)
        keystore.write_text("damaged")
        os.kill(broker.pid, signal.SIGHUP)
        eventually(lambda: any("certificate.kept" in line for line in broker.log_lines))
        assert certificate_of(broker) == second
