from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli.client_flags import output_flag
from ottla.cli.pipeline.job_settings import config_flag
from ottla.model.errors import ConfigError


@click.command()
@config_flag("load")
@click.argument("topics", nargs=-1)
@click.option("--bootstrap-server", "-b", "bootstrap", default="localhost:9092")
@click.option("--target", required=True)
@click.option("--rows", type=click.IntRange(1))
@click.option("--every", type=float)
@click.option("--kind", type=click.Choice(["delta", "iceberg"]), default="delta")
@click.option("--dry-run", is_flag=True)
@click.option("--storage", multiple=True, metavar="KEY=VALUE")
@click.option("--secret", hidden=True)
@output_flag()
def load(**given: object) -> None:
    seen.append(given)


@click.command()
@config_flag("load", "compact")
@click.option("--target", required=True)
@click.option("--size", type=int)
def compact(**given: object) -> None:
    seen.append(given)


@click.command()
@config_flag("load", "shrink", formerly="squeeze")
@click.option("--size-bytes", "--size", "size", type=int)
def shrink(**given: object) -> None:
    seen.append(given)


seen: list[dict[str, object]] = []


def call(tmp_path: Path, content: str, *flags: str, command: click.Command = load) -> dict[str, object]:
    path = tmp_path / "job.toml"
    path.write_text(content)
    seen.clear()
    result = CliRunner().invoke(command, ["--config", str(path), *flags], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return seen[0]


WHOLE = """
[load]
topics = ["clicks", "views"]
bootstrap-server = "one:1"
target = "/lake"
rows = 5
every = 2
kind = "iceberg"
dry_run = true
json = true

[load.storage]
region = "eu"
port = 5
secure = true

[load.compact]
size = 7

[audit]
unknown = 1
"""


def test_every_flag_and_argument_can_be_in_the_file(tmp_path: Path) -> None:
    assert call(tmp_path, WHOLE) == {
        "topics": ("clicks", "views"),
        "bootstrap": "one:1",
        "target": "/lake",
        "rows": 5,
        "every": 2.0,
        "kind": "iceberg",
        "dry_run": True,
        "storage": ("region=eu", "port=5", "secure=true"),
        "secret": None,
        "as_data": True,
    }


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    given = call(tmp_path, WHOLE, "--target", "/other", "-b", "two:2", "--storage", "region=us", "more")
    assert (given["target"], given["bootstrap"], given["storage"], given["topics"], given["rows"]) == (
        "/other",
        "two:2",
        ("region=us",),
        ("more",),
        5,
    )


def test_a_verb_of_a_group_takes_its_own_table_and_then_the_groups(tmp_path: Path) -> None:
    assert call(tmp_path, WHOLE, command=compact) == {"target": "/lake", "size": 7}
    own = '[load]\ntarget = "/lake"\n[load.compact]\ntarget = "/own"\n'
    assert call(tmp_path, own, command=compact) == {"target": "/own", "size": None}


@pytest.mark.parametrize("table", ["load.shrink", "load.squeeze"])
@pytest.mark.parametrize("key", ["size-bytes", "size"])
def test_table_and_keys_of_a_renamed_verb_have_their_former_names_too(tmp_path: Path, table: str, key: str) -> None:
    assert call(tmp_path, f"[{table}]\n{key} = 7\n", command=shrink) == {"size": 7}


@pytest.mark.parametrize(
    ("content", "problem", "hint"),
    [
        ('[load]\ntarget="/x"\nrow = 5', r"job\.toml: \[load\] has the unknown key 'row'", "did you mean 'rows'"),
        ('[load]\ntarget="/x"\nunlike = 5', r"the unknown key 'unlike'", "known: bootstrap-server, dry-run, every"),
        ('[load]\ntarget="/x"\nsecret = "s"', r"the unknown key 'secret'", "known"),
        ('[load]\ntarget="/x"\nrows = "5"', r"\[load\] rows is '5'", "a number"),
        ('[load]\ntarget="/x"\nrows = true', r"\[load\] rows is True", "a number"),
        ('[load]\ntarget="/x"\nrows = 0', r"\[load\] rows: 0 is not in the range", "correct"),
        ('[load]\ntarget="/x"\nrows = 1.5', r"\[load\] rows is 1\.5", "a whole number"),
        ("[load]\ntarget = 5", r"\[load\] target is 5", "in quotes"),
        ('[load]\ntarget="/x"\nkind = "hudi"', r"\[load\] kind: 'hudi' is not one of", "correct"),
        ('[load]\ntarget="/x"\ndry-run = "yes"', r"\[load\] dry-run is 'yes'", "true or false"),
        ('[load]\ntarget="/x"\ntopics = [5]', r"\[load\] topics is 5", "in quotes"),
        ('[load]\ntarget="/x"\nstorage = {a = []}', r"\[load\] storage\.a is a list", "a text"),
        ("load = 5", "load is no table", r"write \[load\]"),
        ('[loads]\ntarget="/x"', r"has no table \[load\]", r"did you mean \[loads\]"),
        ('target = "/x"', r"has no table \[load\]", "it has 'target'"),
        ("[load]\ntarget = /x", r"job\.toml: ", "in quotes"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_by_name(tmp_path: Path, content: str, problem: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        call(tmp_path, content)
    assert hint.replace("\\", "") in str(caught.value.hint)


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    result = CliRunner().invoke(load, ["--config", str(tmp_path / "none.toml")], standalone_mode=False)
    assert isinstance(result.exception, ConfigError)
    assert "none.toml: No such file" in str(result.exception)


def test_a_required_flag_that_is_nowhere_is_missed_as_usual(tmp_path: Path) -> None:
    with pytest.raises(click.MissingParameter, match="target"):
        call(tmp_path, "[load]\nrows = 5")
