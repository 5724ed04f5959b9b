"""./dev bench tls: what TLS costs; Ottla beside Apache Kafka, each with a plain listener and one with TLS."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bench.peers.names import APACHE_KAFKA, OTTLA_OS
from bench.raw_client.build import build_raw_client
from bench.raw_client.load import FetchLoad, LoadFailed, LoadResult, ProduceLoad, put_load
from bench.scenarios.fetch import FILL
from bench.scenarios.scenario import BROKER_CPU, MB_PER_S, REQUESTS_PER_S, Figures
from bench.scenarios.topics import count_records, create_topic, delete_topic, settle_disk
from bench.study import ROUND, Observed, Study, StudyOptions, markdown_table, number, say, times, with_spread
from bench.tls.peers import TLS_PEERS, Keys, TlsPeer

PLAIN: Final = "plain"
TLS: Final = "tls"
TRANSPORTS: Final = (PLAIN, TLS)

SMALL: Final = "produce-b1-f100"
LARGE: Final = "produce-b4000-f5"
FETCH: Final = "fetch-1m"
# What a line is about, and how many times Apache Kafka's figure is aimed at under TLS.
HEADLINES: Final = {SMALL: REQUESTS_PER_S, LARGE: MB_PER_S, FETCH: MB_PER_S}
AIMS: Final = {SMALL: 1.5, FETCH: 0.8}
UNITS: Final = {REQUESTS_PER_S: "requests/s", MB_PER_S: "MB/s"}

CPU_PER_GB: Final = "broker_cpu_s_per_gb"
CORES: Final = "broker_cores"

SECONDS: Final = 4.0
QUICK_SECONDS: Final = 1.5
# Of each line over each listener, before anything is measured: a JVM compiles what runs often.
WARM_S: Final = 8.0
QUICK_WARM_S: Final = 2.0
FILLED: Final = "filled"
WARM: Final = "warm"
_RECORD_BYTES: Final = 16 * 1024


def run(options: StudyOptions, observed: Observed) -> None:
    build_raw_client(with_tls=True)
    observed.about["one core encrypts AES-256-GCM, MB/s"] = round(encryption_mb_per_s())
    keys = Keys.made_in(options.work_dir)
    with ExitStack() as stack:
        peers: dict[str, TlsPeer] = {}
        for name in (name for name in TLS_PEERS if options.has_peer(name)):
            with observed.may_fail(name):
                peers[name] = stack.enter_context(TLS_PEERS[name](options.work_dir, keys))
                create_topic(peers[name].broker, FILLED, 1)
                put_load(FILL, peers[name].broker.port, FILLED)
                _warm_up(peers[name], keys, QUICK_WARM_S if options.is_quick else WARM_S)
        seconds = QUICK_SECONDS if options.is_quick else SECONDS
        for index in range(options.rounds):
            order = list(peers) if index % 2 == 0 else list(peers)[::-1]
            for line, load in loads(seconds).items():
                for transport in TRANSPORTS:
                    for name in order:
                        with observed.may_fail(f"{name}, {line}, {transport}"):
                            figures = _measure(peers[name], line, load, keys, transport)
                            observed.add(line_name(line, transport), name, {ROUND: index, **figures})


def loads(seconds: float) -> Mapping[str, ProduceLoad | FetchLoad]:
    return {
        SMALL: ProduceLoad(1, in_flight=100, seconds=seconds),
        LARGE: ProduceLoad(4_000, in_flight=5, seconds=seconds),
        FETCH: FetchLoad(1 << 20, seconds=seconds),
    }


def line_name(line: str, transport: str) -> str:
    return f"{line}, {transport}"


def encryption_mb_per_s(seconds: float = 0.5) -> float:
    """What one core encrypts in records of TLS, without anything else."""
    cipher, nonce, record = AESGCM(bytes(32)), bytes(12), bytes(_RECORD_BYTES)
    records, started, cpu_started = 0, time.monotonic(), time.process_time()
    while time.monotonic() - started < seconds:
        cipher.encrypt(nonce, record, None)
        records += 1
    return records * _RECORD_BYTES / (time.process_time() - cpu_started) / 1e6


def _warm_up(peer: TlsPeer, keys: Keys, seconds: float) -> None:
    say(f"{peer.broker.name}: warming up")
    create_topic(peer.broker, WARM, 1)
    for line, load in loads(seconds).items():
        for transport in TRANSPORTS:
            _put(peer, load, FILLED if line == FETCH else WARM, keys, transport)
    delete_topic(peer.broker, WARM)


def _put(peer: TlsPeer, load: ProduceLoad | FetchLoad, topic: str, keys: Keys, transport: str) -> LoadResult:
    if transport == TLS:
        return put_load(load, peer.tls_port, topic, ca=keys.ca)
    return put_load(load, peer.broker.port, topic)


def _measure(peer: TlsPeer, line: str, load: ProduceLoad | FetchLoad, keys: Keys, transport: str) -> Figures:
    broker = peer.broker
    topic = FILLED if line == FETCH else line
    if line != FETCH:
        create_topic(broker, topic, 1)
        # The first appends open files: paid once, no part of a rate.
        put_load(ProduceLoad(50, in_flight=5, requests=2), broker.port, topic)
    settle_disk()
    count_before, cpu_before = count_records(broker, topic, 1), broker.cpu_seconds()
    result = _put(peer, load, topic, keys, transport)
    cpu_s = broker.cpu_seconds() - cpu_before
    if line != FETCH:
        stored = count_records(broker, topic, 1) - count_before
        if stored != result.records_total:
            raise LoadFailed(f"{int(result.records_total)} records acknowledged, {stored} stored")
        delete_topic(broker, topic)
    # The broker's time is of the whole load, warm-up and draining included, and so is the count of records.
    cpu_of_record_s = cpu_s / result.records_total
    return {
        REQUESTS_PER_S: result.requests_per_s,
        MB_PER_S: result.mb_per_s,
        "p50_us": result.p50_us,
        "p99_us": result.p99_us,
        BROKER_CPU: cpu_of_record_s * 1e6,
        CPU_PER_GB: cpu_of_record_s * result.records / result.bytes * 1e9,
        CORES: cpu_of_record_s * result.records_per_s,
        "client_cpu_share": result.client_cpu_share,
        "rss_mb": broker.rss_bytes() / 1e6,
    }


def tls_table(observed: Observed) -> str:
    headings = ["line", "", "Apache Kafka", "Ottla", "ratio", "aim", "CPU: Apache Kafka", "CPU: Ottla", "less CPU"]
    rows = []
    for line, headline in HEADLINES.items():
        # A record is what a request of one record costs, bytes are what the others cost.
        cpu, unit = (BROKER_CPU, "s/M records") if headline == REQUESTS_PER_S else (CPU_PER_GB, "s/GB")
        for transport in TRANSPORTS:
            scenario = line_name(line, transport)
            aim = AIMS.get(line) if transport == TLS else None
            ratio = observed.paired_ratio(scenario, OTTLA_OS, APACHE_KAFKA, headline)
            saved = observed.paired_ratio(scenario, APACHE_KAFKA, OTTLA_OS, cpu)
            row = [f"{line}, {UNITS[headline]}", transport]
            row += [with_spread(observed, scenario, name, headline) for name in (APACHE_KAFKA, OTTLA_OS)]
            row += [times(ratio), _verdict(ratio, aim)]
            row += [f"{_cost(observed, scenario, name, cpu)} {unit}" for name in (APACHE_KAFKA, OTTLA_OS)]
            rows.append([*row, times(saved)])
    note = (
        "Medians (least..greatest) of the rounds; ratios are medians of the rounds' own. CPU: processor time of the "
        "broker, with the cores that it kept busy in brackets. TLS 1.3, AES-256-GCM; records of 200 B, one partition, "
        "acks=all; Ottla's policy is `os`."
    )
    return f"{note}\n\n{markdown_table(headings, rows)}"


def _cost(observed: Observed, scenario: str, name: str, metric: str) -> str:
    cost, cores = observed.median(scenario, name, metric), observed.median(scenario, name, CORES)
    return f"{number(cost)} ({number(cores)})"


def _verdict(ratio: float | None, aim: float | None) -> str:
    if aim is None:
        return ""
    if ratio is None:
        return f"{aim}x"
    return f"{aim}x: {'met' if ratio >= aim else 'missed'}"


STUDY: Final = Study(
    name="tls",
    summary="what TLS costs: produce and fetch, in plain text and encrypted",
    parts=(),
    peers=tuple(TLS_PEERS),
    rounds=5,
    run=run,
    table=tls_table,
)
