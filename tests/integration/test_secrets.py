"""A broker and its clients with distinctive secrets: none of them is in what they write, show or are started with.

Spark's plans, event log, checkpoints and progress are searched in tests/integration/spark/test_secured_pipeline.py.
"""

from __future__ import annotations

import base64
import logging
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

import ottla
from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.options import ClientOptions
from ottla.errors import AuthenticationFailed
from ottla.testing.broker import RunningBroker

TIMEOUT_S: Final = 120
KEY_PASSWORD: Final = "zq-key-password-zq"
PLAIN_PASSWORD: Final = "zq-plain-password-zq"
SCRAM_PASSWORD: Final = "zq-scram-password-zq"
WRONG_PASSWORD: Final = "zq-wrong-password-zq"
JAAS_PASSWORD: Final = "zq-jaas-password-zq"
TOKEN: Final = "zq-token-zq"


class Debugged(RunningBroker):
    """Its log has everything that it writes."""

    @property
    def command_line(self) -> list[str]:
        return [*super().command_line, "--log-level", "debug"]


class Scene:
    """`written` collects what the processes write and show, by where that is."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.ca)
        own = authority.issue_cert("localhost", "127.0.0.1")
        key = serialization.load_pem_private_key(own.private_key_pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(KEY_PASSWORD.encode()),
        )
        (folder / "broker.pem").write_bytes(key + b"".join(certificate.bytes() for certificate in own.cert_chain_pems))
        users = folder / "users"
        users.write_text(f"bob={PLAIN_PASSWORD}\n")
        users.chmod(0o600)
        self.key_lines = own.private_key_pem.bytes().decode().splitlines()[1:-1]
        self.folder = folder
        self.broker = Debugged(
            folder / "data",
            settings={
                "ssl.keystore.location": str(folder / "broker.pem"),
                "ssl.key.password": KEY_PASSWORD,
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "sasl.plain.users.file": str(users),
                "plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'user_carol="{JAAS_PASSWORD}";',
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:bob;User:ANONYMOUS",
                "security.log.file": str(folder / "security.log"),
            },
            also_listen=["SASL_SSL://127.0.0.1:0"],
            serves_metrics=True,
            log_path=folder / "broker.log",
        )
        self.written: dict[str, bytes] = {}

    def ottla(self, name: str, *arguments: str, stdin: str = "", environment: Mapping[str, str] = {}) -> None:
        """A verb; what it prints counts as written, after success or failure."""
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
        self.written[f"arguments of {name}"] = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        self.written[f"output of {name}"] = process.communicate(stdin.encode(), TIMEOUT_S)[0]

    def client_file(self, name: str, mechanism: str, user: str, password: str) -> str:
        path = self.folder / f"{name}.properties"
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        path.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nssl.ca.location={self.ca}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
            f'username="{user}" password="{password}";\n'
        )
        return str(path)

    @property
    def secure(self) -> str:
        return self.broker.addresses["SASL_SSL"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("secrets"))
    with made.broker:
        yield made


def act(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    plain = ("-b", scene.broker.bootstrap)
    scene.ottla("user add", "user", "add", "alice", *plain, environment={"OTTLA_USER_PASSWORD": SCRAM_PASSWORD})
    scene.ottla("user list", "user", "list", *plain)
    secure = ("-b", scene.secure, "--command-config")
    alice = scene.client_file("alice", "SCRAM-SHA-512", "alice", SCRAM_PASSWORD)
    bob = scene.client_file("bob", "PLAIN", "bob", PLAIN_PASSWORD)
    scene.ottla("topic create", "topic", "create", "orders", *secure, bob)
    scene.ottla("produce", "produce", "orders", *secure, bob, stdin="one\n")
    scene.ottla("consume", "consume", "orders", *secure, bob, "--from-beginning", "--until-end")
    scene.ottla("a refusal", "topic", "create", "others", *secure, alice)
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        wrong = scene.client_file(f"wrong-{mechanism}", mechanism, "alice", WRONG_PASSWORD)
        scene.ottla(f"a wrong password by {mechanism}", "topic", "list", *secure, wrong)
    scene.ottla(
        "a token",
        "topic",
        "list",
        "-b",
        scene.secure,
        environment={
            "OTTLA_SECURITY_PROTOCOL": "SASL_SSL",
            "OTTLA_SASL_MECHANISM": "PLAIN",
            "OTTLA_SASL_USERNAME": "bob",
            "OTTLA_SASL_PASSWORD": TOKEN,
            "OTTLA_SSL_CA_LOCATION": scene.ca,
        },
    )
    with caplog.at_level(logging.DEBUG):
        security = ottla.client_security(
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "alice",
                "sasl.password": WRONG_PASSWORD,
                "ssl.ca.location": scene.ca,
            }
        )
        options = ClientOptions(security=security)
        with pytest.raises(AuthenticationFailed) as caught, Cluster(scene.secure, options) as cluster:
            Admin(cluster).list_topics()
    texts = (repr(security), str(security), repr(caught.value), str(caught.value), caught.value.hint or "", caplog.text)
    scene.written["texts of a client"] = "\n".join(texts).encode()
    with Cluster(scene.broker.bootstrap) as cluster:
        scene.written["settings"] = repr(
            Admin(cluster).describe_configs(ConfigResource(ResourceType.BROKER, "0"))
        ).encode()
    with urllib.request.urlopen(f"{scene.broker.admin_url}/metrics", timeout=TIMEOUT_S) as response:
        scene.written["metrics"] = response.read()
    scene.written["arguments of the broker"] = Path(f"/proc/{scene.broker.pid}/cmdline").read_bytes()
    scene.ottla("backup", "backup", str(scene.folder / "backup"), "--data-dir", str(scene.broker.data_dir))
    scene.broker.stop()
    for folder in (scene.broker.data_dir, scene.folder / "backup"):
        for path in folder.rglob("*"):
            if path.is_file():
                scene.written[str(path)] = path.read_bytes()
    for log in ("broker.log", "security.log"):
        scene.written[log] = (scene.folder / log).read_bytes()


def test_no_secret_is_written_or_shown(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    act(scene, caplog)
    # The scene was played: logins succeeded and failed, and all of it was collected.
    assert b"user alice can log in" in scene.written["output of user add"]
    assert scene.written["output of consume"] == b"one\n"
    assert b"login.failed" in scene.written["broker.log"]
    assert b"login.succeeded" in scene.written["broker.log"]
    assert b"alice" in scene.written["security.log"]
    assert any(path.endswith("tree.sqlite") and "backup" in path for path in scene.written)
    passwords = [KEY_PASSWORD, PLAIN_PASSWORD, SCRAM_PASSWORD, WRONG_PASSWORD, JAAS_PASSWORD, TOKEN]
    login = base64.b64encode(f"\0bob\0{PLAIN_PASSWORD}".encode()).decode()
    for secret in (*passwords, *scene.key_lines, login):
        found = [name for name, data in scene.written.items() if secret.encode() in data]
        assert found == [], secret


def test_files_of_a_backup_are_readable_by_their_owner_only(scene: Scene) -> None:
    """They have the keys of SCRAM, which check guesses of a password."""
    backup = scene.folder / "backup"
    assert backup.is_dir()
    assert [path for path in (backup, *backup.rglob("*")) if path.stat().st_mode & 0o077] == []
