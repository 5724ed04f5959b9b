"""How long the holder of a session may act without an answer: the same at ZooKeeper and at a group's coordinator.

The lease is two thirds of the session timeout S, counted by the holder's clock from the moment when it sent the last
request that was answered.  The server counts S by its own clock, from a moment that is never earlier.

* Clocks run at different speeds.  Where the holder's clock runs at r times the speed of the server's, the lease takes
  2/3 S / r of the server's time.  A group's coordinator counts from the receipt: the lease ends in time where r >= 2/3.
* The leader of a ZooKeeper ensemble may learn late what a server received: a server reports twice per tick, and a tick
  is at most half a session timeout (servers grant no shorter one), which makes S/4.  So there r must be at least 8/9.
* The rest is for what was checked just before the lease ended and takes effect later: with true clocks a third of the
  session (at ZooKeeper a twelfth) for a request that is on its way.
"""

from __future__ import annotations


def lease_ms(session_timeout_ms: int) -> int:
    return session_timeout_ms * 2 // 3
