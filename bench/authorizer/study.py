"""./dev bench authorizer: what access rules cost the broker, in processor time of requests that take the short path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.peers.ottla import OttlaPeer, start_ottla
from bench.raw_client.load import FetchLoad, ProduceLoad, put_load
from bench.scenarios.topics import create_topic, settle_disk
from bench.study import ROUND, Observed, Study, StudyOptions, markdown_table, number
from ottla.client.admin.access import create_acls
from ottla.client.wire.cluster import Cluster
from ottla.security.acl import (
    ANONYMOUS,
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

PLAIN: Final = "ottla-plain"
GUARDED: Final = "ottla-guarded"
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    PLAIN: {},
    GUARDED: {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # For the first rules, and for what no rule covers.
        "allow.everyone.if.no.acl.found": "true",
    },
}
FILL: Final = ProduceLoad(1, in_flight=20, requests=20_000)
LOADS: Final[Mapping[str, ProduceLoad | FetchLoad]] = {
    "produce-b1-f20": ProduceLoad(1, in_flight=20, requests=100_000),
    "produce-b1-f1": ProduceLoad(1, in_flight=1, requests=40_000),
    "produce-b50-f20-p16": ProduceLoad(50, in_flight=20, partitions=16, requests=20_000),
    # One batch of one record in a response.
    "fetch-1k": FetchLoad(1_000, seconds=2, warmup_s=0.5),
    "fetch-64k": FetchLoad(64 << 10, seconds=2, warmup_s=0.5),
}
OTHER_RULES_COUNT: Final = 1_000
REPEATS: Final = 4
QUICK_REPEATS: Final = 1

BROKER: Final = "broker_us_per_request"


def run(options: StudyOptions, observed: Observed) -> None:
    names = [name for name in SETTINGS if options.has_peer(name)]
    for index in range(options.rounds):
        for name in names if index % 2 == 0 else names[::-1]:
            with observed.may_fail(name), start_ottla("os", options.work_dir, SETTINGS[name]) as peer:
                if name == GUARDED:
                    _add_rules(peer)
                for scenario, load in LOADS.items():
                    _prepare(peer, scenario, load)
                    for _ in range(QUICK_REPEATS if options.is_quick else REPEATS):
                        observed.add(scenario, name, {ROUND: index, BROKER: _cost_us(peer, scenario, load)})


def _add_rules(peer: OttlaPeer) -> None:
    """The client may do everything with topics; the other rules are of others, by topic and by prefix."""

    def rule(pattern_type: PatternType, name: str, principal: str, operation: Operation) -> Acl:
        pattern = ResourcePattern(ResourceType.TOPIC, pattern_type, name)
        return Acl(pattern, AccessEntry(principal, "*", operation, Permission.ALLOW))

    own = rule(PatternType.LITERAL, "*", ANONYMOUS, Operation.ALL)
    others = [
        rule(kind, f"other-{number}-", f"User:user-{number}", Operation.READ)
        for number in range(OTHER_RULES_COUNT // 2)
        for kind in (PatternType.LITERAL, PatternType.PREFIXED)
    ]
    with Cluster(f"127.0.0.1:{peer.port}") as cluster:
        assert create_acls(cluster, [own]) == {own: None}
        create_acls(cluster, others)


def _prepare(peer: OttlaPeer, scenario: str, load: ProduceLoad | FetchLoad) -> None:
    partitions_count = load.partitions if isinstance(load, ProduceLoad) else 1
    create_topic(peer, scenario, partitions_count)
    warm_up = ProduceLoad(50, in_flight=5, partitions=partitions_count, requests=2 * partitions_count)
    put_load(warm_up if isinstance(load, ProduceLoad) else FILL, peer.port, scenario)


def _cost_us(peer: OttlaPeer, scenario: str, load: ProduceLoad | FetchLoad) -> float:
    settle_disk()
    before_s = peer.cpu_seconds()
    result = put_load(load, peer.port, scenario)
    return (peer.cpu_seconds() - before_s) / result.requests_total * 1e6


def table(observed: Observed) -> str:
    headings = ["load", "broker µs/request", "with an authorizer", "difference"]
    rows = []
    for scenario in observed.scenarios():
        plain, guarded = (observed.least(scenario, name, BROKER) for name in (PLAIN, GUARDED))
        more = "-" if plain is None or guarded is None else f"{100 * (guarded / plain - 1):+.1f} %"
        rows.append([scenario, number(plain), number(guarded), more])
    note = (
        f"Processor time for each request: the 10th percentile of {REPEATS} equal loads in each round, with "
        f"{OTHER_RULES_COUNT:,} rules of others. bN: records of 200 B in a batch; fN: requests in flight; "
        "pN: partitions."
    )
    return f"{note}\n\n{markdown_table(headings, rows)}"


STUDY: Final = Study(
    name="authorizer",
    summary="what access rules cost the broker, where a request takes the short path",
    parts=(),
    peers=tuple(SETTINGS),
    rounds=5,
    run=run,
    table=table,
)
