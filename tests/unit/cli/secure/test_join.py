"""`ottla secure token` and `join`, up to the connection to ZooKeeper."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.program import program
from ottla.model.errors import OttlaError
from ottla.runtime.secret_file import write_secret_file
from ottla.security.issuing import issue
from ottla.security.join_token import NONCE_BYTES, PASSPHRASE_BYTES, JoinToken, SealedToken, TokenHead, passphrase_of
from ottla.security.secret import Secret

# No test lives as long as this.
LATE_MS = 4_000_000_000_000
PASSPHRASE = passphrase_of(bytes(PASSPHRASE_BYTES))


class Machine:
    """The files of an operator, and what the verbs make of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder / "b2.token"
        self.joined = folder / "joined"
        self.passphrase = folder / "passphrase"
        write_secret_file(self.passphrase, PASSPHRASE.reveal())

    def write_token(self, host: str = "127.0.0.1", expires_ms: int = LATE_MS, node_id: int | None = 2) -> None:
        # No server has this port: it is that of a socket that is closed.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        settings = {"zookeeper.connect": f"127.0.0.1:{port}", "zookeeper.connection.timeout.ms": "500"}
        token = JoinToken(TokenHead("id", host, expires_ms), node_id, settings, {"ssl.keystore.location": "key\n"})
        write_secret_file(self.token, token.sealed(PASSPHRASE, bytes(NONCE_BYTES)))

    def join(self, *flags: str) -> str:
        return refusal(
            ["secure", "join", str(self.token), str(self.joined), "--passphrase-file", str(self.passphrase), *flags]
        )


def refusal(arguments: Sequence[str], stdin: bytes = b"") -> str:
    result = CliRunner().invoke(program, arguments, input=stdin)
    assert isinstance(result.exception, OttlaError), result.output
    return str(result.exception)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_expired_token_is_refused_before_the_passphrase_is_needed(machine: Machine) -> None:
    machine.write_token(expires_ms=1_000)
    machine.passphrase.unlink()
    assert "the token expired at 1970-01-01T00:00:01Z" in machine.join()


def test_token_of_another_host_is_refused(machine: Machine) -> None:
    # An address of documentation (RFC 5737), which no machine has.
    machine.write_token("192.0.2.1")
    assert "the token is for 192.0.2.1, and this machine is" in machine.join()
    assert "the token is for 192.0.2.1, not 192.0.2.2" in machine.join("--host", "192.0.2.2")
    assert not machine.joined.exists()


def test_token_that_others_can_read_is_refused(machine: Machine) -> None:
    machine.write_token()
    machine.token.chmod(0o644)
    assert "the token: others can read" in machine.join()


def test_passphrase_that_others_can_read_is_refused(machine: Machine) -> None:
    machine.write_token()
    machine.passphrase.chmod(0o640)
    assert "--passphrase-file: others can read" in machine.join()


def test_damaged_token_is_refused(machine: Machine) -> None:
    machine.write_token()
    machine.token.write_text(machine.token.read_text().replace("Cluster: id", "Cluster: other"))
    assert "the token is damaged: its checksum is wrong" in machine.join()


def test_folder_that_joined_already_stays_as_it_is(machine: Machine) -> None:
    machine.write_token()
    machine.joined.mkdir()
    (machine.joined / "server.properties").write_text("node.id=1")
    assert "has joined a cluster already" in machine.join()
    assert [path.name for path in machine.joined.iterdir()] == ["server.properties"]
    (machine.joined / "server.properties").rename(machine.joined / "notes")
    assert "is not empty" in machine.join()


def test_node_id_is_named_once(machine: Machine) -> None:
    machine.write_token(node_id=None)
    assert "the token names no node id" in machine.join()
    machine.token.unlink()
    machine.write_token(node_id=2)
    assert "the token is for node.id 2, not 3" in machine.join("--node-id", "3")


def test_nothing_stays_where_zookeeper_cannot_be_reached(machine: Machine) -> None:
    machine.write_token()
    assert "127.0.0.1" in machine.join()
    assert not machine.joined.exists()


SERVER = """
zookeeper.connect=zk1:2281/ottla
listeners=SASL_SSL://0.0.0.0:9093
inter.broker.listener.name=SASL_SSL
sasl.inter.broker.username=broker
"""


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A folder as `secure init` makes it, of a cluster."""
    issued = issue(["b1.example"], datetime.now(UTC))
    folder = tmp_path / "authority"
    folder.mkdir()
    for name, text in (("ca.pem", issued.authority), ("ca.key", issued.authority_key), ("server.properties", SERVER)):
        write_secret_file(folder / name, text)
    return folder


def test_token_is_made_without_a_connection_when_the_cluster_is_named(authority: Path, tmp_path: Path) -> None:
    path, passphrase = tmp_path / "b2", tmp_path / "words"
    flags = ["--host", "b2.example", "--cluster-id", "id", "--output", str(path), "--passphrase-file", str(passphrase)]
    done = CliRunner().invoke(program, ["secure", "token", str(authority), *flags])
    assert done.exit_code == 0, done.output
    assert [os.stat(made).st_mode & 0o777 for made in (path, passphrase)] == [0o600, 0o600]
    token = SealedToken.parse(path.read_text()).opened(Secret(passphrase.read_text()))
    assert (token.head.host, token.head.cluster_id, token.user) == ("b2.example", "id", "broker-b2.example")
    assert token.files["ssl.keystore.location"].startswith("-----BEGIN PRIVATE KEY-----")
    for secret in (passphrase.read_text().strip(), token.files["sasl.inter.broker.password.file"].strip()):
        assert secret not in done.output


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--host", "b2 example"], "is not a host name"),
        (["--host", "b2\nHost"], "is not a host name"),
        (["--host", "0.0.0.0"], "is not the address of one machine"),
        (["--host", "b2", "--valid-for", "31d"], "is not between"),
        (["--host", "b2", "--valid-for", "0m"], "is not between"),
    ],
)
def test_token_needs_a_host_and_a_time(authority: Path, flags: list[str], problem: str) -> None:
    assert problem in refusal(["secure", "token", str(authority), "--cluster-id", "id", *flags])


def test_token_that_is_valid_for_no_duration_is_a_wrong_call(authority: Path) -> None:
    given = ["secure", "token", str(authority), "--cluster-id", "id", "--host", "b2", "--valid-for", "soon"]
    assert "--valid-for is a duration like" in CliRunner().invoke(program, given).output


def test_token_does_not_replace_a_file_and_leaves_no_passphrase(authority: Path, tmp_path: Path) -> None:
    passphrase = tmp_path / "words"
    flags = ["--host", "b2", "--cluster-id", "i", "--output", str(authority / "ca.pem")]
    found = refusal(["secure", "token", str(authority), *flags, "--passphrase-file", str(passphrase)])
    assert "ca.pem: File exists" in found
    assert not passphrase.exists()


def test_token_on_standard_output_is_read_from_standard_input(authority: Path, machine: Machine) -> None:
    flags = ["--host", "192.0.2.1", "--cluster-id", "id", "--output", "-", "--passphrase-file", str(machine.token)]
    shown = CliRunner().invoke(program, ["secure", "token", str(authority), *flags]).stdout
    assert SealedToken.parse(shown).head.host == "192.0.2.1"
    joining = ["secure", "join", "-", str(machine.joined)]
    assert "the token is for 192.0.2.1" in refusal(joining, shown.encode())
    assert "is not a token" in refusal(joining, b"\xff")
    assert "characters that no token has" in refusal(joining, shown.encode().replace(b"-----END", b"\xff", 1))


def test_key_of_the_authority_that_others_can_read_is_refused(authority: Path) -> None:
    (authority / "ca.key").chmod(0o644)
    assert "ca.key: others can read" in refusal(
        ["secure", "token", str(authority), "--host", "b2", "--cluster-id", "i"]
    )
