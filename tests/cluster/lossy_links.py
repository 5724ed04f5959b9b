"""A switch in user space between network namespaces that delays, drops and duplicates packets.

    python -m tests.cluster.lossy_links SEED DELAY_MS JITTER_MS LOSS DUPLICATION NAMESPACE=ADDRESS ...

Kernels without netem have no other way.  Each namespace gets a TUN device and a route through it to each of the other
addresses, which is narrower than the one of the bridge: established connections move to it.  It prints `ready`
when all routes are there.  When its input ends the devices go, with their routes, and it prints its `LinkFigures`.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from itertools import count
from typing import Final, NamedTuple

READY: Final = "ready"
# As on the bridge: established connections have negotiated segments for it.
_MTU_BYTES: Final = 1500
_DEVICE: Final = "lossy"
# <linux/if_tun.h> and <linux/sched.h>.
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_CLONE_NEWNET: Final = 0x40000000
_PACKETS_PER_TURN: Final = 64
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class LinkQuality(NamedTuple):
    """A packet arrives after `delay_ms`, more or less by up to `jitter_ms`; the others are shares of the packets."""

    delay_ms: float
    jitter_ms: float
    loss: float
    duplication: float

    def arrivals_ms(self, rng: random.Random) -> list[float]:
        """After how long each copy of one packet arrives: none when it is lost."""
        if rng.random() < self.loss:
            return []
        copies_count = 2 if rng.random() < self.duplication else 1
        return [max(0.0, self.delay_ms + rng.uniform(-1, 1) * self.jitter_ms) for _ in range(copies_count)]


@dataclass
class LinkFigures:
    """Counts of delivered, lost and duplicated packets."""

    packets_count: int = 0
    lost_count: int = 0
    doubled_count: int = 0
    delivered_count: int = 0
    # Of those that were delivered, measured.
    delays_ms_sum: float = 0

    @property
    def mean_delay_ms(self) -> float:
        return self.delays_ms_sum / max(1, self.delivered_count)

    def __str__(self) -> str:
        return (
            f"{self.packets_count} packets, {self.lost_count} lost, {self.doubled_count} doubled, "
            f"{self.mean_delay_ms:.0f} ms each"
        )


class _Switch:
    def __init__(self, quality: LinkQuality, rng: random.Random, devices: Mapping[bytes, int]) -> None:
        self.figures = LinkFigures()
        self._quality = quality
        self._rng = rng
        self._devices = devices
        # (when, tie-breaker, read when, device, packet)
        self._under_way: list[tuple[float, int, float, int, bytes]] = []
        self._numbers = count()

    def run(self) -> None:
        """Until the standard input ends."""
        with selectors.DefaultSelector() as selector:
            stdin = selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
            for device in self._devices.values():
                selector.register(device, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(self._deliver()):
                    if key == stdin:
                        return
                    self._read(key.fd)

    def _deliver(self) -> float | None:
        """Deliver what is due; the seconds until the next packet is."""
        now_s = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now_s:
            _, _, read_s, device, packet = heapq.heappop(self._under_way)
            # A device that refuses the packet loses it, as these links should.
            with suppress(OSError):
                os.write(device, packet)
            self.figures.delivered_count += 1
            self.figures.delays_ms_sum += (now_s - read_s) * 1000
        return self._under_way[0][0] - now_s if self._under_way else None

    def _read(self, device: int) -> None:
        for _ in range(_PACKETS_PER_TURN):
            try:
                packet = os.read(device, 2 * _MTU_BYTES)
            except BlockingIOError:
                return
            # Version 6 announces itself on every interface; only version 4 is routed here.
            to = self._devices.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if to is not None:
                self._send(to, packet)

    def _send(self, to: int, packet: bytes) -> None:
        now_s = time.monotonic()
        arrivals_ms = self._quality.arrivals_ms(self._rng)
        self.figures.packets_count += 1
        self.figures.lost_count += not arrivals_ms
        self.figures.doubled_count += len(arrivals_ms) > 1
        for after_ms in arrivals_ms:
            heapq.heappush(self._under_way, (now_s + after_ms / 1000, next(self._numbers), now_s, to, packet))


def _open_device(namespace: str, address: str, others: Sequence[str]) -> int:
    """Open the device in that namespace, with routes to the others; it is removed when its descriptor is closed."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    inside = os.open(namespace, os.O_RDONLY)
    try:
        _enter(inside)
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
        _run("ip", "link", "set", "dev", _DEVICE, "mtu", str(_MTU_BYTES), "up")
        for other in others:
            _run("ip", "route", "add", f"{other}/32", "dev", _DEVICE, "src", address)
    finally:
        _enter(own)
        os.close(inside)
        os.close(own)
    return device


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> None:
    seed, *shares = sys.argv[1:6]
    address_of = dict(pair.rsplit("=", 1) for pair in sys.argv[6:])
    devices = {}
    for namespace, address in address_of.items():
        others = [other for other in address_of.values() if other != address]
        devices[IPv4Address(address).packed] = _open_device(namespace, address, others)
    switch = _Switch(LinkQuality(*map(float, shares)), random.Random(int(seed)), devices)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    switch.run()
    sys.stdout.write(json.dumps(asdict(switch.figures)))


if __name__ == "__main__":
    main()
