"""Checks of a cluster's ZooKeeper: its servers, and what the brokers keep there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.cli.doctor.findings import Finding, ok, problem, warning
from ottla.model.counted import counted
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.cli.cluster.health import ZooKeeperHealth
    from ottla.coordination.zookeeper.inspection import TreeInspection
    from ottla.model.settings import BrokerSettings

AREA: Final = "zookeeper"
ANSWER_WITHIN_S: Final = 3.0
LATENCY_MS_WARNING: Final = 50.0
# Timestamps of records and retention by time go by the brokers' clocks.
CLOCK_MS_WARNING: Final = 2_000
ENSEMBLE_MIN: Final = 3
_LATENCY: Final = "Latency min/avg/max"


def zookeeper_findings(settings: BrokerSettings) -> Iterator[Finding | TreeInspection]:
    """Findings, and at last what the tree has, if it could be read."""
    from ottla.cli.cluster.health import servers_health
    from ottla.coordination.zookeeper.connect_string import ConnectString
    from ottla.coordination.zookeeper.credentials import DigestCredentials
    from ottla.coordination.zookeeper.inspection import inspect_tree
    from ottla.model.broker_settings import ZOOKEEPER_CONNECT, ZOOKEEPER_DIGEST, ZOOKEEPER_SESSION_TIMEOUT_MS
    from ottla.testing.four_letter_words import ask_zookeeper

    connect, digest = settings[ZOOKEEPER_CONNECT], settings[ZOOKEEPER_DIGEST]
    assert connect is not None
    try:
        where = ConnectString.parse(connect)
        credentials = None if digest is None else DigestCredentials.parse(digest)
    except OttlaError as error:
        yield problem(AREA, str(error), error.hint or "correct zookeeper.connect and zookeeper.digest")
        return
    yield from server_findings(servers_health(where, ANSWER_WITHIN_S))
    confs = {
        address: ask_zookeeper(host, port, "conf", timeout_s=ANSWER_WITHIN_S)
        for (host, port), address in zip(where.servers, where.addresses, strict=True)
    }
    yield from timeout_findings(confs, settings[ZOOKEEPER_SESSION_TIMEOUT_MS])
    started_s = time.perf_counter()
    try:
        seen = inspect_tree(connect, credentials, ANSWER_WITHIN_S)
    except OttlaError as error:
        yield problem(AREA, f"the tree cannot be read: {error}", error.hint or "look at ZooKeeper's own log")
        return
    yield ok(AREA, f"the tree was read in {(time.perf_counter() - started_s) * 1_000:.0f} ms")
    yield from tree_findings(seen, has_digest=credentials is not None)
    yield seen


def server_findings(servers: Sequence[ZooKeeperHealth]) -> Iterator[Finding]:
    """Each server, and whether the ensemble survives the loss of one."""
    for server in servers:
        if server.problem is not None and "whitelist" in server.problem:
            yield warning(
                AREA,
                f"{server.address} does not report its state: {server.problem}",
                "allow it: 4lw.commands.whitelist=srvr,conf in zoo.cfg",
            )
        elif server.problem is not None:
            yield problem(AREA, f"{server.address}: {server.problem}", "start it, or correct zookeeper.connect")
        else:
            version = server.facts.get("Zookeeper version", "of unknown version").partition(",")[0]
            text = f"{server.address}: {server.mode}, version {version}, {_LATENCY.lower()} ms {_latency(server)}"
            average = _latency(server).split("/")
            if len(average) == 3 and float(average[1]) > LATENCY_MS_WARNING:
                yield warning(AREA, text, "give its transaction log (dataLogDir) a disk of its own")
            else:
                yield ok(AREA, text)
    if len(servers) < ENSEMBLE_MIN and not any(server.mode in ("leader", "follower") for server in servers):
        yield warning(
            AREA,
            f"{counted(len(servers), 'server')}: when one fails, no broker leads anything until it is back",
            "run an ensemble of three, and name all of them in zookeeper.connect",
        )


def _latency(server: ZooKeeperHealth) -> str:
    return server.facts.get(_LATENCY, "-")


def timeout_findings(confs: Mapping[str, str], session_timeout_ms: int) -> Iterator[Finding]:
    """Whether the servers grant the session time-out; `confs` are their answers to `conf`."""
    for address, conf in confs.items():
        told = dict(line.split("=", 1) for line in conf.splitlines() if "=" in line)
        low, high = told.get("minSessionTimeout", ""), told.get("maxSessionTimeout", "")
        if not (low.isdecimal() and high.isdecimal()):
            continue
        if int(low) <= session_timeout_ms <= int(high):
            yield ok(AREA, f"{address} grants zookeeper.session.timeout.ms={session_timeout_ms} ({low} to {high})")
        else:
            granted = min(max(session_timeout_ms, int(low)), int(high))
            yield warning(
                AREA,
                f"{address} grants {granted} ms instead of zookeeper.session.timeout.ms={session_timeout_ms}",
                f"choose one from {low} to {high}, or change tickTime or the limits in zoo.cfg",
            )


def tree_findings(seen: TreeInspection, *, has_digest: bool) -> Iterator[Finding]:
    """What the tree has: the cluster, its registered brokers, and who may change it."""
    if seen.cluster_id is None:
        yield warning(
            AREA, "there is no cluster at this chroot yet", "the first broker makes one; is the chroot right?"
        )
        return
    nodes = ", ".join(map(str, sorted(seen.brokers))) or "none"
    yield ok(AREA, f"cluster {seen.cluster_id}, registered brokers: {nodes}")
    if not seen.brokers:
        yield problem(AREA, "no broker of the cluster is registered", "start the brokers")
    if seen.open_paths and has_digest:
        yield problem(
            AREA,
            f"any client may change {', '.join(seen.open_paths)}: they were made without zookeeper.digest",
            "set their ACLs by ZooKeeper's zkCli.sh: setAcl -R",
        )
    elif seen.open_paths:
        yield warning(
            AREA,
            "any client that reaches ZooKeeper may change the tree",
            "protect its port, or give all brokers zookeeper.digest before the first start",
        )
    ahead = {node_id: broker.ahead_ms for node_id, broker in seen.brokers.items()}
    if len(ahead) > 1:
        apart_ms = max(ahead.values()) - min(ahead.values())
        text = f"the brokers' clocks were {apart_ms} ms apart when they registered"
        if apart_ms > CLOCK_MS_WARNING:
            worst = ", ".join(f"broker {node_id}: {ms:+} ms" for node_id, ms in sorted(ahead.items()))
            yield warning("clocks", f"{text} (against ZooKeeper's: {worst})", "run chrony or ntpd on every machine")
        else:
            yield ok("clocks", text)


def directory_findings(seen: TreeInspection, node_id: int, identity: Mapping[str, str]) -> Iterator[Finding]:
    """Whether a data directory with this `meta.properties` belongs to the cluster, as this broker's."""
    cluster_id = identity.get("cluster.id")
    if seen.cluster_id is not None and cluster_id is not None and cluster_id != seen.cluster_id:
        yield problem(
            "directory",
            f"it belongs to cluster {cluster_id}, and ZooKeeper has cluster {seen.cluster_id}",
            "correct zookeeper.connect, or give this broker a directory of its own",
        )
        return
    if cluster_id is not None:
        yield ok("directory", f"it is node {node_id}'s of cluster {cluster_id}")
