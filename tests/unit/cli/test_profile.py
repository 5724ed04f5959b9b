"""`ottla profile`, and where verbs connect that are given no address."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli.client_flags import (
    bootstrap_flag,
    default_bootstrap,
    given_security,
    optional_bootstrap_flag,
    with_origin,
)
from ottla.cli.exit_status import CALLED_WRONGLY, FAILED
from ottla.cli.program import run
from ottla.cli.testing import environment_with
from ottla.client.wire.destination.destination import Destination
from ottla.client.wire.destination.local_cluster import LocalCluster, write_local_cluster
from ottla.client.wire.security.settings import PLAINTEXT, PasswordLogin
from tests.unit.cli.every_verb import every_verb

PASSWORD = "geheim-17"
LOGIN = (
    "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=ann\n"
    f"sasl.password={PASSWORD}\nssl.ca.location=ca.pem\n"
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "client.properties").write_text(LOGIN)
    return tmp_path


def ottla(*arguments: str) -> None:
    assert run(arguments) == 0, arguments


def address_of_a_verb(*arguments: str) -> str:
    """Of one that has the flag, and of one that may find the brokers elsewhere: they are the same."""
    found: list[str] = []

    @click.command()
    @bootstrap_flag
    def verb(bootstrap: str) -> None:
        found.append(bootstrap)

    @click.command()
    @optional_bootstrap_flag
    def other_verb(bootstrap: str | None) -> None:
        found.append(bootstrap or default_bootstrap())

    for each in (verb, other_verb):
        done = CliRunner().invoke(each, arguments)
        if done.exception is not None:
            raise done.exception
    assert found[0] == found[1]
    return found[0]


def username_of_a_verb(*arguments: str) -> str | None:
    found: list[str | None] = []

    @click.command()
    @bootstrap_flag
    def verb(bootstrap: str) -> None:
        security = given_security()
        assert isinstance(security.login, PasswordLogin) or security == PLAINTEXT
        found.append(security.login.username if isinstance(security.login, PasswordLogin) else None)

    done = CliRunner().invoke(verb, arguments)
    if done.exception is not None:
        raise done.exception
    return found[0]


def test_every_verb_with_an_address_follows_the_one_rule() -> None:
    for path, command in every_verb():
        for option in command.params:
            if "--bootstrap-server" in option.opts and path != "profile create":
                assert not isinstance(option.default, str), f"{path} has a default address"
                assert "--profile" in {name for each in command.params for name in each.opts}, path


def test_profile_that_is_created_is_used(capsys: pytest.CaptureFixture[str], directory: Path) -> None:
    ottla("profile", "create", "live", "-b", "live:9093", "--command-config", "client.properties")
    path = directory / "config" / "ottla" / "profiles" / "live.properties"
    assert capsys.readouterr().out == f"created profile live: {path}\nusing profile live, for live:9093\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert address_of_a_verb() == "live:9093"
    assert username_of_a_verb() == "ann"
    ottla("profile", "use", "--none")
    assert address_of_a_verb() == "localhost:9092"
    assert username_of_a_verb() is None


def test_flag_and_variables_win_over_the_profile_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    ottla("profile", "create", "test", "-b", "test:1", "--no-use")
    ottla("profile", "create", "live", "-b", "live:1", "--command-config", "client.properties")
    assert address_of_a_verb("--profile", "test") == "test:1"
    monkeypatch.setenv("OTTLA_PROFILE", "test")
    assert address_of_a_verb() == "test:1"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka:1")
    assert address_of_a_verb() == "kafka:1"
    assert username_of_a_verb() is None
    assert address_of_a_verb("--profile", "live") == "live:1"
    assert address_of_a_verb("--profile", "live", "-b", "typed:1") == "typed:1"
    assert username_of_a_verb("--profile", "live", "-b", "typed:1") == "ann"


def test_every_verb_in_the_directory_of_a_cluster_connects_there(directory: Path) -> None:
    (directory / "ottla-cluster").mkdir()
    write_local_cluster(directory / "ottla-cluster", LocalCluster(2181, (9292, 9293)))
    assert address_of_a_verb() == "127.0.0.1:9292,127.0.0.1:9293"


def test_error_of_an_address_that_cannot_be_reached_names_its_origin(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "ottla-cluster").mkdir()
    write_local_cluster(directory / "ottla-cluster", LocalCluster(2181, (1,)))
    told = {
        ("topic", "list"): "the address is that of the cluster in this directory; `ottla cluster up` starts it again",
        ("cluster", "status"): "the address is that of the cluster in this directory",
        ("group", "list", "-b", "127.0.0.1:1"): "the address is that of --bootstrap-server; is it right, ",
    }
    for arguments, hint in told.items():
        assert run(arguments) == FAILED
        assert f"\nhint: {hint}" in capsys.readouterr().err
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert run(["topic", "list"]) == FAILED
    assert "\nhint: the address is that of OTTLA_BOOTSTRAP_SERVERS; " in capsys.readouterr().err


def test_address_from_elsewhere_has_no_origin() -> None:
    @click.command()
    @bootstrap_flag
    def verb(bootstrap: str) -> None:
        assert isinstance(with_origin(bootstrap), Destination)
        assert with_origin("of-zookeeper:1") == "of-zookeeper:1"

    assert CliRunner().invoke(verb, ["-b", "typed:1"]).exception is None


def test_secrets_are_neither_arguments_nor_shown(capsys: pytest.CaptureFixture[str], directory: Path) -> None:
    assert run(["profile", "create", "live", "-b", "live:1", "--set", f"sasl.password={PASSWORD}"]) == FAILED
    assert "could read it in the list of processes" in capsys.readouterr().err
    ottla("profile", "create", "live", "-b", "live:1", "--command-config", "client.properties")
    capsys.readouterr()
    ottla("profile", "show")
    out = capsys.readouterr().out
    assert PASSWORD not in out
    assert "sasl.password=***\n" in out
    assert f"ssl.ca.location={directory / 'ca.pem'}\n" in out
    ottla("profile", "show", "live", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["is_in_use"]
    assert shown["properties"]["sasl.password"] == "***"


def test_profiles_are_listed_with_the_one_in_use_and_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("live", "test"):
        ottla("profile", "create", name, "-b", f"{name}:1", "--set", "security.protocol=SSL")
    capsys.readouterr()
    Path("config/ottla/profiles/live.properties").chmod(0o644)
    ottla("profile", "list")
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()] == [
        ["USED", "PROFILE", "BOOTSTRAP-SERVERS", "SECURITY"],
        ["-", "live", "-", "-"],
        ["*", "test", "test:1", "SSL"],
    ]
    assert err.startswith("note: the profile live is open to other users")


def test_profile_is_replaced_only_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    ottla("profile", "create", "live", "-b", "live:1")
    assert run(["profile", "create", "live", "-b", "live:2"]) == FAILED
    assert "exists already" in capsys.readouterr().err
    ottla("profile", "create", "live", "-b", "live:2", "--replace")
    assert address_of_a_verb() == "live:2"
    ottla("profile", "delete", "live")
    assert address_of_a_verb() == "localhost:9092"


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["create", "live"], CALLED_WRONGLY, "Name the brokers"),
        (["create", "live", "-b", "x:y"], FAILED, "'x:y' is not an address"),
        (["create", "../live", "-b", "x:1"], FAILED, "is not a profile's name"),
        (["create", "live", "-b", "x:1", "--set", "sasl.usrname=x"], FAILED, "sasl.usrname is not a security setting"),
        (["use"], CALLED_WRONGLY, "Name a profile, or give --none."),
        (["use", "gone"], FAILED, "there is no profile gone"),
        (["show"], FAILED, "no profile is in use"),
        (["delete", "gone"], FAILED, "there is no profile gone"),
    ],
)
def test_wrong_call_creates_nothing(
    arguments: list[str], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", *arguments]) == status
    assert told in capsys.readouterr().err
    ottla("profile", "list")
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_folder_that_cannot_be_made_is_reported_with_what_to_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert run(["profile", "create", "test", "-b", "test:9092"]) == FAILED
    assert capsys.readouterr().err.splitlines() == [
        f"error: the folder of profiles {tmp_path / 'file' / 'ottla' / 'profiles'} cannot be made: Not a directory",
        "hint: set XDG_CONFIG_HOME to a folder where this user may write",
    ]


def test_variable_that_hides_the_profile_is_noted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka:1")
    ottla("profile", "create", "live", "-b", "live:1")
    assert capsys.readouterr().err == "note: here KAFKA_BOOTSTRAP_SERVERS is set, which wins: kafka:1\n"


def test_command_beside_a_broker_for_tests_has_no_other_address_and_no_login() -> None:
    theirs = {
        "PATH": "/bin",
        "OTTLA_PROFILE": "live",
        "OTTLA_COMMAND_CONFIG": "/live.properties",
        "OTTLA_SECURITY_PROTOCOL": "SASL_SSL",
        "OTTLA_SASL_PASSWORD": PASSWORD,
        "OTTLA_BOOTSTRAP_SERVERS": "live:1",
    }
    assert environment_with("127.0.0.1:5", theirs) == {
        "PATH": "/bin",
        "OTTLA_BOOTSTRAP_SERVERS": "127.0.0.1:5",
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:5",
    }


def test_names_of_profiles_are_completed_in_the_shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("live", "test"):
        ottla("profile", "create", name, "-b", f"{name}:1")
    capsys.readouterr()
    monkeypatch.setenv("_OTTLA_COMPLETE", "bash_complete")
    for words in ("ottla profile use li", "ottla topic list --profile li"):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        with pytest.raises(SystemExit) as done:
            run([])
        assert done.value.code == 0
        assert capsys.readouterr().out == "plain,live\n"
