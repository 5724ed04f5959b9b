from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.cli.program import run
from ottla.cli.systemd_unit import memory_budgets, memory_lines
from ottla.model.setting_sources import RawSetting, resolve
from ottla.model.settings import BrokerSettings

MIB = 1 << 20


def _unit(capsys: pytest.CaptureFixture[str], *arguments: str) -> configparser.RawConfigParser:
    assert run(["systemd-unit", *arguments]) == 0
    found = configparser.RawConfigParser(delimiters=("=",), strict=True)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser documents it
    found.read_string(capsys.readouterr().out)
    return found


def test_unit_runs_what_is_installed_here_with_enough_files(capsys: pytest.CaptureFixture[str]) -> None:
    service = _unit(capsys, "--config", "/etc/ottla.properties", "--", "--listen", "127.0.0.1:9092")["Service"]
    assert service["ExecStart"].endswith(
        " -P -m ottla serve /etc/ottla.properties --data-dir /var/lib/ottla --listen 127.0.0.1:9092"
    )
    assert (service["Type"], service["LimitNOFILE"], service["User"]) == ("notify", "1048576", "ottla")
    assert (service["StateDirectory"], "ReadWritePaths" in service) == ("ottla", False)


def _settings(**values: str) -> BrokerSettings:
    texts = [RawSetting(name.replace("_", "."), value, "test") for name, value in values.items()]
    return resolve([texts])[0]


def test_unit_limits_memory_to_what_the_budgets_sum_up_to(capsys: pytest.CaptureFixture[str]) -> None:
    budgets = memory_budgets(_settings())
    assert budgets["requests"] == 512 * MIB
    assert budgets["connections"] == 10_000 * (64 + 9) * 1024
    assert (budgets["groups"], budgets["offsets"], budgets["cleaner"]) == (128 * MIB, 256 * MIB, 128 * MIB)
    assert "registry" not in budgets
    *comment, limit = memory_lines(budgets, machine_bytes=MIB)
    sum_mib = -(-sum(budgets.values()) // MIB)
    assert limit == f"MemoryMax={sum_mib}M"
    assert "requests 512 + decoded 180 + responses 320 + batches 66 +" in comment[1]
    assert comment[1].endswith(f"= {sum_mib}.")
    assert _unit(capsys)["Service"]["MemoryMax"].removesuffix("M").isdigit()


def test_processes_take_memory_each_and_have_one_schema_registry(capsys: pytest.CaptureFixture[str]) -> None:
    settings = _settings(schema_registry_listeners="http://127.0.0.1:8081")
    one, three = memory_budgets(settings), memory_budgets(settings, 3)
    assert three.pop("registry") == one.pop("registry")
    assert three == {name: 3 * size_bytes for name, size_bytes in one.items()}
    for arguments in (["--processes", "3"], ["--processes=3"]):
        assert run(["systemd-unit", "--", *arguments]) == 0
        assert f"process {3 * 512} + " in capsys.readouterr().out


def test_settings_and_a_larger_machine_move_the_limit_of_memory() -> None:
    defaults = memory_budgets(_settings())
    changed = memory_budgets(
        _settings(
            max_connections="100",
            queued_max_request_bytes=str(64 * MIB),
            log_cleaner_dedupe_buffer_size=str(MIB),
            schema_registry_listeners="http://127.0.0.1:8081",
        )
    )
    assert (changed["connections"], changed["requests"]) == (100 * (64 + 9) * 1024, 64 * MIB)
    assert (changed["cleaner"], changed["registry"]) == (MIB, 1024 * MIB)
    assert "cleaner" not in memory_budgets(_settings(log_cleaner_enable="false"))
    two = memory_budgets(_settings(listeners="A://127.0.0.1:9092,B://127.0.0.1:9093"))
    assert two["requests"] == 2 * defaults["requests"], "each listener has its own"
    assert memory_lines(defaults, machine_bytes=64 << 30)[-1] == f"MemoryMax={48 << 10}M", "the page cache counts"


def test_directory_elsewhere_is_opened_for_writing_and_what_systemd_takes_for_itself_is_quoted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = _unit(capsys, "--data-dir", '/data/a b%$"c')["Service"]
    assert service["ReadWritePaths"] == '"/data/a b%%$\\"c"', "there is no variable in a path"
    assert service["ExecStart"].endswith('--data-dir "/data/a b%%$$\\"c"')
    assert "StateDirectory" not in service


def test_directory_of_the_settings_is_the_services(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "server.properties"
    config.write_text("log.dirs=/data/kafka\n")
    service = _unit(capsys, "--config", str(config))["Service"]
    assert service["ExecStart"].endswith(f" {config} --data-dir /data/kafka")
    assert service["ReadWritePaths"] == "/data/kafka"
    assert _unit(capsys, "--config", str(config), "--data-dir", "/var/lib/x")["Service"]["StateDirectory"] == "x"
    config.write_text("num.partitions=3\n")
    assert _unit(capsys, "--config", str(config))["Service"]["StateDirectory"] == "ottla"


@pytest.mark.parametrize("flag", ["--user", "--data-dir", "--config"])
def test_nothing_that_is_given_adds_a_line_to_the_unit(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["systemd-unit", flag, "a\nExecStartPre=/bin/x"]) != 0
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze (Debian: systemd)")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["systemd-unit", "--data-dir", "/data/a b", "--config", "/etc/a b.properties"]) == 0
    unit = tmp_path / "ottla.service"
    unit.write_text(capsys.readouterr().out)
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
