"""The security of a verb's connections: from `--command-config`, and from variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli.client_flags import bootstrap_flag, given_security, optional_bootstrap_flag
from ottla.cli.pipeline.job_settings import config_flag
from ottla.client.wire.destination.profiles import ProfileFolder, profiles_folder
from ottla.client.wire.security.setting_names import read_client_properties
from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity, PasswordLogin
from ottla.model.errors import ConfigError
from ottla.security.secret import Secret

PASSWORD = "geheim-17"
CONFIG = f"""
bootstrap.servers=elsewhere:1
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="bob" password="{PASSWORD}";
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTTLA_COMMAND_CONFIG", "OTTLA_SECURITY_PROTOCOL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(CONFIG)
    return path


def seen_by_a_verb(*arguments: str, environment: Mapping[str, str] | None = None) -> ClientSecurity:
    found: list[ClientSecurity] = []

    @click.command()
    @bootstrap_flag
    def verb(bootstrap: str) -> None:
        found.append(given_security())

    done = CliRunner().invoke(verb, arguments, env=dict(environment or {}))
    if done.exception is not None:
        raise done.exception
    return found[0]


def username_of(security: ClientSecurity) -> str:
    assert isinstance(security.login, PasswordLogin)
    return security.login.username


def test_a_verb_connects_in_plain_text_by_default() -> None:
    assert seen_by_a_verb() == PLAINTEXT


def test_the_file_of_kafkas_tools_is_read(config: Path) -> None:
    security = seen_by_a_verb("--command-config", str(config))
    assert isinstance(security.login, PasswordLogin)
    assert security.login.password == Secret(PASSWORD)


def test_a_variable_names_the_file_unless_the_flag_does(config: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.properties"
    other.write_text(CONFIG.replace("bob", "eve"))
    environment = {"OTTLA_COMMAND_CONFIG": str(other)}
    assert username_of(seen_by_a_verb(environment=environment)) == "eve"
    assert username_of(seen_by_a_verb("--command-config", str(config), environment=environment)) == "bob"


def test_variables_complete_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
    environment = {"OTTLA_SASL_USERNAME": "ann", "OTTLA_SASL_PASSWORD": PASSWORD}
    assert username_of(seen_by_a_verb("--command-config", str(path), environment=environment)) == "ann"


def test_a_file_that_is_missing_or_wrong_is_named(config: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        seen_by_a_verb("--command-config", str(tmp_path / "none"))
    config.write_text(CONFIG + "sasl.usrname=x\n")
    with pytest.raises(ConfigError, match=r"sasl\.usrname") as refused:
        seen_by_a_verb("--command-config", str(config))
    assert PASSWORD not in str(refused.value)


def test_the_verbs_of_a_cluster_have_the_flag_too(config: Path) -> None:
    found: list[ClientSecurity] = []

    @click.command()
    @optional_bootstrap_flag
    def verb(bootstrap: str | None) -> None:
        found.append(given_security())

    assert CliRunner().invoke(verb, ["--command-config", str(config)]).exit_code == 0
    assert username_of(found[0]) == "bob"


@pytest.mark.parametrize(
    ("content", "typed", "bootstrap", "username"),
    [
        ('bootstrap-server = "live:1"', ("--profile", "staging"), "elsewhere:1", "bob"),
        ('profile = "staging"', ("-b", "other:1"), "other:1", None),
        ('bootstrap-server = "live:1"\nprofile = "staging"', (), "live:1", "bob"),
    ],
)
def test_a_job_file_does_not_mix_its_cluster_with_a_typed_one(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    typed: tuple[str, ...],
    bootstrap: str,
    username: str | None,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profiles = ProfileFolder(profiles_folder(os.environ))
    profiles.write("staging", read_client_properties(config))
    job = tmp_path / "job.toml"
    job.write_text(f"[job]\n{content}\n")
    found: list[tuple[str, ClientSecurity]] = []

    @click.command()
    @config_flag("job")
    @bootstrap_flag
    def verb(bootstrap: str) -> None:
        found.append((bootstrap, given_security()))

    CliRunner().invoke(verb, [*typed, "--config", str(job)], catch_exceptions=False)
    ((address, security),) = found
    assert address == bootstrap
    assert security == PLAINTEXT if username is None else username_of(security) == username


def test_no_flag_takes_a_password() -> None:
    @click.command()
    @bootstrap_flag
    def verb(bootstrap: str) -> None:
        pass

    assert not [option for parameter in verb.params for option in parameter.opts if "password" in option]
