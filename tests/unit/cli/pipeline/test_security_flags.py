"""How the pipeline's verbs get TLS and logins: files of settings, never arguments with secrets."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli.client_flags import bootstrap_flag, source_options
from ottla.cli.pipeline import mirror
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.errors import ConfigError
from ottla.security.protocol import SecurityProtocol

SECRET = "wa1tForTheTrain"
CLUSTERS = ("--source", "127.0.0.1:1", "--target", "127.0.0.1:2")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_COMMAND_CONFIG", raising=False)
    monkeypatch.delenv("OTTLA_SECURITY_PROTOCOL", raising=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    login = f"sasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\nsasl.password={SECRET}\n"
    path.write_text(f"security.protocol=SASL_SSL\n{login}")
    return path


def options_of(*arguments: str) -> dict[str, str]:
    found: list[dict[str, str]] = []

    @click.command()
    @bootstrap_flag
    def verb(bootstrap: str) -> None:
        found.append(source_options({"includeHeaders": "true"}))

    CliRunner().invoke(verb, list(arguments), catch_exceptions=False)
    return found[0]


def test_verb_on_spark_passes_the_path_of_its_file_and_no_secret(config: Path) -> None:
    assert options_of("--command-config", str(config)) == {
        "clientPropertiesFile": str(config),
        "includeHeaders": "true",
    }
    assert options_of() == {"includeHeaders": "true"}


def test_verb_on_spark_refuses_a_bad_file_before_spark_starts(config: Path) -> None:
    config.write_text("security.protocol=SASL_SSL\n")
    with pytest.raises(ConfigError, match="without a login"):
        options_of("--command-config", str(config))


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> dict[str, ClientSecurity]:
    """The security with which each side was tried, by its flag; none can be reached."""
    found: dict[str, ClientSecurity] = {}

    def try_to_reach(bootstrap: str, client_id: str, flag: str, security: ClientSecurity) -> None:
        assert ClientOptions(client_id=client_id, security=security)
        found[flag] = security
        if flag == "--target":
            raise ConfigError("the test ends here")

    monkeypatch.setattr(mirror, "check_reachable", try_to_reach)
    return found


@pytest.mark.parametrize("verb", ["plan", "run", "status"])
def test_each_side_of_a_mirror_has_its_own_security(
    verb: str, config: Path, reached: dict[str, ClientSecurity]
) -> None:
    done = CliRunner().invoke(mirror.command, [verb, *CLUSTERS, "--source-config", str(config)])
    assert str(done.exception) == "the test ends here"
    assert reached["--source"].protocol is SecurityProtocol.SASL_SSL
    assert reached["--target"] == PLAINTEXT
    assert SECRET not in done.output


def test_mirror_takes_no_variables_since_they_would_be_for_both_sides(
    config: Path, reached: dict[str, ClientSecurity], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(config))
    done = CliRunner().invoke(mirror.command, ["run", *CLUSTERS, "--source-config", str(config)])
    assert "--target-config is missing" in str(done.exception)
    assert not reached
    plain = config.with_name("plain.properties")
    plain.write_text("security.protocol=PLAINTEXT\n")
    CliRunner().invoke(
        mirror.command, ["run", *CLUSTERS, *("--source-config", str(config)), "--target-config", str(plain)]
    )
    assert reached["--target"] == PLAINTEXT
