"""./dev bench transactions: commits by one and ten producers, and what their readers fetch, beside Apache Kafka."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, OTTLA_OS, PEERS
from bench.peers.peer import Peer
from bench.raw_client.load import FetchLoad, LoadFailed, TransactionLoad, put_load
from bench.scenarios.scenario import MB_PER_S, Figures
from bench.scenarios.topics import count_records, create_topic, delete_topic, settle_disk
from bench.study import ROUND, Observed, Study, StudyOptions, markdown_table, say, times, with_spread

TRANSACTIONS_PER_S: Final = "transactions_per_s"
COMMIT_P50_MS: Final = "commit_p50_ms"
COMMIT_P99_MS: Final = "commit_p99_ms"
CPU_MS: Final = "broker_cpu_ms_per_transaction"

PRODUCERS: Final = (1, 10)
RECORDS: Final = (1, 10, 100)
# One for each producer.
PARTITIONS: Final = max(PRODUCERS)
ALL: Final = "fetch of all records"
COMMITTED: Final = "fetch of committed records"
OURS: Final = (OTTLA_OS, OTTLA_ACK)
# How many times Apache Kafka's rate is aimed at.
AIMS: Final = {OTTLA_OS: 2.0, OTTLA_ACK: 1.0}

SECONDS: Final = 4.0
QUICK_SECONDS: Final = 1.5
# A JVM compiles what runs often.
WARM_S: Final = 15.0
QUICK_WARM_S: Final = 3.0
WARM: Final = "warm"
FILLED: Final = "filled"
FILLING: Final = 3_000
QUICK_FILLING: Final = 500
# A transaction has a marker beside its records.
MARKERS: Final = 1


def run(options: StudyOptions, observed: Observed) -> None:
    seconds = QUICK_SECONDS if options.is_quick else SECONDS
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name in (name for name in PEERS if options.has_peer(name)):
            with observed.may_fail(name):
                peer = stack.enter_context(PEERS[name](options.work_dir))
                _warm_up(peer, QUICK_WARM_S if options.is_quick else WARM_S)
                create_topic(peer, FILLED, 1)
                filling = QUICK_FILLING if options.is_quick else FILLING
                put_load(TransactionLoad(max(RECORDS), 1, requests=filling), peer.port, FILLED)
                peers[name] = peer
        for index in range(options.rounds):
            order = list(peers) if index % 2 == 0 else list(peers)[::-1]
            for producers in PRODUCERS:
                for records in RECORDS:
                    for name in order:
                        with observed.may_fail(f"{name}, {producers} producers, {records} records"):
                            load = TransactionLoad(records, producers, PARTITIONS, seconds)
                            figures = _commit(peers[name], load)
                            observed.add(line_name(producers, records), name, {ROUND: index, **figures})
            for line in (ALL, COMMITTED):
                for name in order:
                    with observed.may_fail(f"{name}, {line}"):
                        fetch = FetchLoad(1 << 20, seconds, is_committed=line == COMMITTED)
                        result = put_load(fetch, peers[name].port, FILLED)
                        observed.add(line, name, {ROUND: index, MB_PER_S: result.mb_per_s})


def line_name(producers: int, records: int) -> str:
    return f"{producers} producer{'s' if producers > 1 else ''}, {records} record{'s' if records > 1 else ''}"


def _warm_up(peer: Peer, seconds: float) -> None:
    say(f"{peer.name}: warming up")
    create_topic(peer, WARM, PARTITIONS)
    for producers in PRODUCERS:
        load = TransactionLoad(max(RECORDS), producers, PARTITIONS, seconds / 2, warmup_s=0)
        put_load(load, peer.port, WARM)
    delete_topic(peer, WARM)


def _commit(peer: Peer, load: TransactionLoad) -> Figures:
    topic = f"transactions-{load.producers}-{load.records}"
    create_topic(peer, topic, PARTITIONS)
    settle_disk()
    cpu_before = peer.cpu_seconds()
    result = put_load(load, peer.port, topic)
    cpu_s = peer.cpu_seconds() - cpu_before
    stored, expected = count_records(peer, topic, PARTITIONS), result.requests_total * (load.records + MARKERS)
    # The last transactions may not have their markers yet.
    if not expected - load.producers <= stored <= expected:
        raise LoadFailed(f"{int(expected)} records and markers committed, {stored} stored")
    delete_topic(peer, topic)
    return {
        TRANSACTIONS_PER_S: result.requests_per_s,
        COMMIT_P50_MS: result.p50_us / 1000,
        COMMIT_P99_MS: result.p99_us / 1000,
        CPU_MS: cpu_s / result.requests_total * 1000,
        "client_cpu_share": result.client_cpu_share,
        "rss_mb": peer.rss_bytes() / 1e6,
    }


def transactions_table(observed: Observed) -> str:
    commits = [line_name(producers, records) for producers in PRODUCERS for records in RECORDS]
    rates = [_compared(observed, line, TRANSACTIONS_PER_S) for line in commits]
    fetches = [_compared(observed, line, MB_PER_S) for line in (ALL, COMMITTED)]
    costs = []
    for line in commits:
        for name in (APACHE_KAFKA, *OURS):
            figures = [with_spread(observed, line, name, metric) for metric in (COMMIT_P50_MS, COMMIT_P99_MS, CPU_MS)]
            costs.append([line, name, *figures])
    headings = ("", "Apache Kafka", *(word for name in OURS for word in (name, "ratio")))
    note = (
        "Medians (least..greatest) of the rounds; ratios are medians of the rounds' own. Each producer sends one batch "
        "of records of 200 B (Produce v12, which adds the partition) and commits (EndTxn v5), one transaction at a "
        "time. A request that is refused because the last transaction is not complete is sent again after 2 ms."
    )
    return "\n\n".join(
        (
            note,
            f"### Transactions/s (aims: {AIMS[OTTLA_OS]:g}x with `os`, {AIMS[OTTLA_ACK]:g}x with `ack`)",
            markdown_table(headings, rates),
            "### Commits: from the request to its answer",
            markdown_table(("", "broker", "p50 ms", "p99 ms", "broker CPU ms/transaction"), costs),
            "### Readers, MB/s: transactions of 100 records",
            markdown_table(headings, fetches),
        )
    )


def _compared(observed: Observed, line: str, metric: str) -> list[str]:
    row = [line, with_spread(observed, line, APACHE_KAFKA, metric)]
    for name in OURS:
        ratio = observed.paired_ratio(line, name, APACHE_KAFKA, metric)
        row += [with_spread(observed, line, name, metric), times(ratio)]
    return row


STUDY: Final = Study(
    name="transactions",
    summary="commits by one and ten producers, their latency, and readers of committed records",
    parts=(),
    peers=tuple(PEERS),
    rounds=3,
    run=run,
    table=transactions_table,
)
