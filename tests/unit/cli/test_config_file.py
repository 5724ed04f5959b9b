from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.config_file import CONFIG_FILE_BYTES_MAX, read_config_file
from ottla.model.errors import ConfigError
from ottla.model.setting_sources import RawSetting


def _file(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_properties_carry_file_and_line(tmp_path: Path) -> None:
    path = _file(tmp_path, "server.properties", "# x\nnode.id=1\n")
    assert read_config_file(path) == [RawSetting("node.id", "1", "server.properties line 2")]


@pytest.mark.parametrize("name", ["server.properties", "ottla.toml"])
def test_mark_of_an_editor_is_no_part_of_the_first_name(tmp_path: Path, name: str) -> None:
    (setting,) = read_config_file(_file(tmp_path, name, "\ufeffmax.connections=7\n"))
    assert (setting.name, setting.text) == ("max.connections", "7")


@pytest.mark.parametrize(
    "content",
    [
        "log.segment.bytes = 1048576",
        '"log.segment.bytes" = 1048576',
        "[log]\nsegment.bytes = 1048576",
        "[log.segment]\nbytes = 1048576",
        'log.segment.bytes = "1048576"',
    ],
)
def test_toml_tables_are_the_dots_of_names(tmp_path: Path, content: str) -> None:
    path = _file(tmp_path, "ottla.toml", content)
    assert read_config_file(path) == [RawSetting("log.segment.bytes", "1048576", "ottla.toml")]


def test_toml_values_become_kafkas_texts(tmp_path: Path) -> None:
    path = _file(tmp_path, "ottla.toml", 'a = true\nb = ["compact", "delete"]\nc = 0.5\nd = []\n')
    assert [raw.text for raw in read_config_file(path)] == ["true", "compact,delete", "0.5", ""]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("ottla.toml", "a = 1\na.b = 2", "ottla.toml"),
        ("ottla.toml", "a = 2026-01-01", "is a date"),
        ("ottla.toml", "a = [1]", "is a list"),
        ("ottla.toml", "a =", "ottla.toml"),
        ("server.properties", "x=\\u1", "server.properties line 1"),
        ("server.properties", b"\xff\xfe", "not UTF-8"),
        ("server.properties", b"#" * (CONFIG_FILE_BYTES_MAX + 1), "larger"),
    ],
)
def test_bad_file_is_refused_with_its_name_and_a_hint(
    tmp_path: Path, name: str, content: str | bytes, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        read_config_file(_file(tmp_path, name, content))
    assert caught.value.hint


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: No such file"):
        read_config_file(tmp_path / "none.properties")
