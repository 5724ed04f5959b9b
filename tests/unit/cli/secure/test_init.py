"""`ottla secure init`: the files of a broker that is alone, and of the first one of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from ottla.cli.config_file import file_settings, read_config_file
from ottla.cli.program import program
from ottla.coordination.zookeeper.security import zookeeper_security
from ottla.model.errors import ConfigError
from ottla.model.serve_options import serve_options
from ottla.model.zookeeper_settings import ZOOKEEPER_SSL_KEYSTORE_LOCATION
from ottla.security.member_settings import member_settings

CONNECT = "zk1.example:2281,zk2.example:2281/ottla"


def init(folder: Path, *flags: str) -> str:
    result = CliRunner().invoke(program, ["secure", "init", str(folder), "--host", "b1.example", *flags])
    assert result.exit_code == 0, result.output
    return result.output


def test_broker_without_a_zookeeper_is_alone(tmp_path: Path) -> None:
    assert "zookeeper" not in init(tmp_path / "b1")
    assert sorted(path.name for path in (tmp_path / "b1").iterdir()) == [
        "broker.pem",
        "ca.key",
        "ca.pem",
        "client.properties",
        "server.properties",
        "users",
    ]
    assert [str(each) for each in serve_options(file_settings(tmp_path / "b1" / "server.properties")).listeners] == [
        "SASL_SSL://0.0.0.0:9093"
    ]


def test_first_broker_of_a_cluster_has_a_listener_for_brokers_and_a_closed_tree(tmp_path: Path) -> None:
    output = init(tmp_path / "b1", "--zookeeper", CONNECT, "--port", "9000")
    config = tmp_path / "b1" / "server.properties"
    settings = file_settings(config)
    options = serve_options(settings)
    assert [str(each) for each in options.advertised] == ["SASL_SSL://b1.example:9000", "BROKERS://b1.example:9001"]
    assert options.inter_broker_listener.name == "BROKERS"
    security = zookeeper_security(settings)
    assert (security.digest is None, security.consumers is None, security.tls is None) == (False, False, False)
    assert settings[ZOOKEEPER_SSL_KEYSTORE_LOCATION] == str(tmp_path / "b1" / "broker.pem")
    for name in ("broker.password", "zookeeper.digest", "zookeeper.consumers.digest", "users"):
        assert (tmp_path / "b1" / name).read_text().strip().rpartition(":")[2].rpartition("=")[2] not in output
    assert member_settings([(raw.name, raw.text) for raw in read_config_file(config)], "b2.example").user


def test_certificate_of_zookeeper_is_for_all_its_servers(tmp_path: Path) -> None:
    init(tmp_path / "b1", "--zookeeper", CONNECT)
    pem = (tmp_path / "b1" / "zookeeper.pem").read_text()
    # ZooKeeper reads no other form of key.
    assert pem.startswith("-----BEGIN PRIVATE KEY-----")
    certificate = x509.load_pem_x509_certificate(pem[pem.index("-----BEGIN CERTIFICATE") :].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["zk1.example", "zk2.example"]


@pytest.mark.parametrize(
    "flags",
    [["--zookeeper", "zk1:port"], ["--zookeeper", CONNECT, "--port", "65535"]],
)
def test_refused_flags_write_nothing(tmp_path: Path, flags: list[str]) -> None:
    result = CliRunner().invoke(program, ["secure", "init", str(tmp_path / "b1"), *flags])
    assert isinstance(result.exception, ConfigError)
    assert not (tmp_path / "b1").exists()
