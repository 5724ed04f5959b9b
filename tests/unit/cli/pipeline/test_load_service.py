"""The file of `ottla load serve`, and what it reports of itself; without Spark."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from click.testing import CliRunner

from ottla.cli.pipeline.load_health import LoadHealth, load_metrics, unhealthy
from ottla.cli.pipeline.load_service import tables_of
from ottla.cli.pipeline.load_verb import command
from ottla.client.wire.errors import ClientError
from ottla.model.errors import ConfigError
from ottla.observe.metrics import CollectorRegistry
from ottla.spark.errors import DataLoss, RecordsRefused
from ottla.spark.lake.following import LoadTrack

ROOT = Path(__file__).parents[4]
COMMON = '[load]\nbootstrap-server = "localhost:9092"\nevery = "20s"\n'
CLICKS = '[load.tables.clicks]\ntopics = ["clicks"]\ntarget = "/lake/clicks"\n'
ORDERS = '[load.tables.orders]\ntopics = ["orders", "returns"]\ntarget = "/lake/orders"\nevery = "5m"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "loads.toml"


def test_tables_of_a_file_have_what_it_says_for_all(file: Path) -> None:
    file.write_text(COMMON + CLICKS + ORDERS)
    found = list(tables_of(file, None))
    assert [(table.name, table.every_ms) for table in found] == [("clicks", 20_000), ("orders", 300_000)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (COMMON, "has no table [load.tables.NAME]"),
        (COMMON + '[load.tables.clicks]\ntopics = ["clicks"]\n', "[load.tables.clicks]: Missing option '--target'"),
        (COMMON + CLICKS + "rows = 5\n", "[load.tables.clicks] has the unknown key 'rows'"),
        (COMMON + CLICKS + 'rows-per-commit = "5"\n', "[load.tables.clicks] rows-per-commit is '5'"),
        (COMMON + CLICKS + 'start = "yesterday-ish"\n', "[load.tables.clicks]: "),
        (COMMON + CLICKS + 'event-time = "a"\nevent-time-field = "b"\n', "both say what an event's time is"),
        (COMMON + CLICKS + 'master = "local[4]"\n', "[load.tables.clicks] has a setting of the process"),
        (COMMON + CLICKS + ORDERS.replace("/lake/orders", "/lake/clicks"), "has the target of clicks"),
        (COMMON + ORDERS + "upsert = true\n", "[load.tables.orders]: an upsert reads one topic"),
        (COMMON + CLICKS + 'upsert = true\npartition-by = ["topic"]\n', "a table of upserts is partitioned by buckets"),
        (COMMON + CLICKS + 'partition-by = ["contry"]\n', "--partition-by: records have no column 'contry'"),
        (COMMON + CLICKS + 'column = ["kee"]\n', "[load.tables.clicks]: records have no column 'kee' to keep"),
        (COMMON + CLICKS + 'decode = "nowhere.py:pages"\n', "[load.tables.clicks]: there is no file nowhere.py"),
        (
            COMMON + ORDERS.replace(', "returns"', "") + 'upsert = true\nkey = "id"\ndebezium = "id int"\n'
            f'decode = "{__file__}:tracks"\n',
            "--debezium and --decode both say what the columns are",
        ),
        (COMMON + 'evry = "5s"\n' + CLICKS, "[load] has the unknown key 'evry'"),
        (COMMON + CLICKS + '[load.servee]\nevery = "5s"\n', "[load] has the unknown key 'servee'"),
        (COMMON + CLICKS + 'table = "clicks"\n', "[load.tables.clicks]: 'clicks' names no Iceberg table"),
        (COMMON + CLICKS + 'dead-letter-topic = "a/b"\n', "[load.tables.clicks]: dead letters of clicks: "),
        (COMMON + CLICKS + "option = { startingOffsets = 'latest' }\n", "does not apply to a load"),
    ],
)
def test_file_is_checked_before_spark_starts(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        list(tables_of(file, None))
    assert problem in str(raised.value)


def test_check_names_the_tables_and_ends(file: Path) -> None:
    file.write_text(COMMON + CLICKS + ORDERS)
    outcome = CliRunner().invoke(command, ["serve", "--config", str(file), "--check"])
    assert (outcome.exit_code, outcome.stdout) == (0, f"{file}: 2 tables: clicks, orders\n")


@pytest.mark.parametrize("address", ["9400", "localhost", "localhost:http", "localhost:70000", ":9400"])
def test_address_without_a_host_or_a_port_is_refused(file: Path, address: str) -> None:
    file.write_text(COMMON + CLICKS)
    outcome = CliRunner().invoke(command, ["serve", "--config", str(file), "--http", address])
    assert outcome.exit_code == 2
    assert "--http takes HOST:PORT" in outcome.stderr


def test_file_has_the_settings_of_the_process_too(file: Path) -> None:
    file.write_text(COMMON + CLICKS + '[load.serve]\nhttp = "nowhere"\n')
    outcome = CliRunner().invoke(command, ["serve", "--config", str(file)])
    assert (outcome.exit_code, "--http takes HOST:PORT, not 'nowhere'" in outcome.stderr) == (2, True)
    file.write_text(COMMON + CLICKS + "[load.serve]\nport = 5\n")
    outcome = CliRunner().invoke(command, ["serve", "--config", str(file), "--check"])
    assert "[load.serve] has the unknown key 'port'" in str(outcome.exception)


def tracks() -> dict[str, LoadTrack]:
    clicks, orders, gone = (LoadTrack(10_000, 0) for _ in range(3))
    clicks.begin(1_000)
    clicks.committed(100, 3, 2, left_count=0)
    clicks.succeed(2_000, 0)
    orders.fail(ClientError("no broker"), 5_000)
    gone.fail(DataLoss("records 3 to 7 are gone"), 5_000)
    return {"clicks": clicks, "orders": orders, "gone": gone}


def test_metrics_have_lag_rows_commits_files_and_failures_of_each_table() -> None:
    registry = CollectorRegistry()
    registry.add(lambda: load_metrics(tracks(), 9_000))
    lines = "".join(registry.chunks()).splitlines()
    for expected in (
        'ottla_load_lag_records{table="clicks"} 0',
        'ottla_load_lag_seconds{table="clicks"} 8.0',
        'ottla_load_rows_total{table="clicks"} 100',
        'ottla_load_files_total{table="clicks"} 3',
        'ottla_load_commits_total{table="clicks"} 2',
        'ottla_load_failures_total{table="orders"} 1',
        'ottla_load_stopped{table="gone"} 1',
        'ottla_load_stopped{table="orders"} 0',
    ):
        assert expected in lines
    # It was never complete.
    assert not [line for line in lines if line.startswith('ottla_load_lag_seconds{table="orders"}')]


def test_refused_records_are_counted_by_table_and_reason() -> None:
    found = tracks()
    found["clicks"].committed(5, 1, 1, left_count=0, refused={"decode": 2})
    found["clicks"].committed(5, 1, 1, left_count=0, refused={"decode": 1, "change": 4})
    found["orders"].fail(RecordsRefused("decode failed: KeyError: 'card'", reason="decode"), 6_000)
    registry = CollectorRegistry()
    registry.add(lambda: load_metrics(found, 9_000))
    lines = "".join(registry.chunks()).splitlines()
    assert [line for line in lines if line.startswith("ottla_load_refused_records_total{")] == [
        'ottla_load_refused_records_total{table="clicks",reason="decode"} 3',
        'ottla_load_refused_records_total{table="clicks",reason="change"} 4',
        'ottla_load_refused_records_total{table="orders",reason="decode"} 1',
    ]


def test_guide_has_each_metric_and_its_alerts_have_no_other() -> None:
    page = (ROOT / "docs" / "guide" / "loads.md").read_text()
    families = {family.name for family in load_metrics({}, 0)}
    table = [line for line in page.splitlines() if line.startswith("| `ottla_load_")]
    assert set(re.findall(r"`(ottla_load_\w+)", "".join(table))) == families
    rules = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert all(rule.keys() <= {"alert", "expr", "for"} for rule in alerts)
    assert {rule["alert"] for rule in alerts} == {
        "LoadStopped",
        "LoadLate",
        "LoadRefusesRecords",
        "LoadFails",
        "LoadGone",
    }
    assert set(re.findall(r"\bottla\w+", "".join(rule["expr"] for rule in alerts))) <= families


def test_health_fails_for_a_table_that_stopped_and_for_one_that_fails_for_long() -> None:
    assert unhealthy(tracks(), 6_000, 10_000) == ["gone: stopped: DataLoss"]
    assert unhealthy(tracks(), 16_000, 10_000)[0] == "orders: its loads have failed for 11 s: ClientError"
    assert unhealthy({"clicks": tracks()["clicks"]}, 10**9, 10_000) == []


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("orders", 2, 3), "orders: stopped: RecordsRefused (decode), at offset 3 of orders partition 2"),
        (None, "orders: stopped: RecordsRefused (decode)"),
    ],
)
def test_health_has_the_place_of_a_refused_record_and_nothing_of_its_content(
    place: tuple[str, int, int] | None, expected: str
) -> None:
    found = {"orders": LoadTrack(10_000, 0)}
    error = RecordsRefused("decode failed: ValueError: card 4711", hint="mend 4711", reason="decode", place=place)
    found["orders"].fail(error, 6_000)
    assert unhealthy(found, 6_000, 10_000) == [expected]


def test_health_and_metrics_are_served_and_pages_of_other_names_are_refused() -> None:
    found = tracks()
    with LoadHealth(
        "127.0.0.1", 0, lambda: load_metrics(found, 9_000), lambda: unhealthy(found, 9_000, 10_000)
    ) as health:

        def get(path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", health.port, timeout=60)
            connection.request("GET", path, headers=dict(headers or {}))
            response = connection.getresponse()
            answer = response.status, response.read().decode()
            connection.close()
            return answer

        status, text = get("/metrics")
        assert status == 200
        assert 'ottla_load_rows_total{table="clicks"} 100\n' in text
        assert get("/healthz")[0] == 503
        del found["gone"]
        assert get("/healthz") == (200, "ok\n")
        assert get("/other")[0] == 404
        assert get("/metrics", {"Host": "evil.example"})[0] == 403


@pytest.mark.parametrize(("host", "client"), [("::1", "::1"), ("0.0.0.0", "127.0.0.1")])
def test_health_is_served_at_an_address_of_ipv6_and_at_any_address_by_its_number(host: str, client: str) -> None:
    try:
        health = LoadHealth(host, 0, lambda: load_metrics({}, 0), list)
    except ConfigError:
        if host == "::1":
            pytest.skip("this machine has no IPv6")
        raise
    with health:
        connection = http.client.HTTPConnection(client, health.port, timeout=60)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"ok\n"
        connection.request("GET", "/healthz", headers={"Host": "metrics.example"})
        refusal = connection.getresponse().read().decode()
        assert "add it to --http in place of the address, or let them use the address" in refusal
        connection.close()
