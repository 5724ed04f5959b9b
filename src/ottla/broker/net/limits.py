"""Limits of the broker's shell that are not settings.  They bound memory for any size that a peer claims."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# A connection starts with this receive buffer, and has it again when it is idle: requests of consumers, heartbeats and
# commits fit.  A bytearray is written when it is made, so all of it is resident.
FIRST_BUFFER_BYTES: Final = 4 * KIB
# While a connection sends more it has this one.  It takes nothing of the budget below, which one client could exhaust:
# `max.connections` bounds the sum.
RECEIVE_BUFFER_BYTES: Final = 64 * KIB

# After a large frame a buffer up to this size is kept for the next one: batches of 1 MB come one after another.
RECEIVE_BUFFER_KEPT_BYTES: Final = 2 * MIB

# Receive buffers grown beyond that size, over all connections; connections wait for room beyond it.
RECEIVE_BUDGET_BYTES: Final = 512 * MIB

# A request up to this size is small: batches of 1 MB, which clients send unless they are configured otherwise.
SMALL_FRAME_BYTES_MAX: Final = 2 * MIB
# The part of the budget, one of so many, that large requests leave to small ones.
RECEIVE_BUDGET_OF_SMALL: Final = 4

# The smallest request: api key, version, correlation id (a header v0 without client id).
REQUEST_BYTES_MIN: Final = 8

# A request above this, of all APIs but Produce and Fetch, is read and served in steps, between which others run: a
# kilobyte may hold 300 elements, each some microseconds to read, serve and answer.
IN_STEPS_BYTES: Final = 2 * KIB
# An answer with more elements is written in steps.
IN_STEPS_ELEMENTS: Final = 256

# A Produce or full Fetch above this may name so many partitions that it is served in steps.
PARTITIONS_IN_STEPS_BYTES: Final = 16 * KIB
# Then so many partitions are one step; each takes some 10 microseconds.
PARTITIONS_OF_STEP: Final = 64
# A Produce that appends more than this is served in steps as well.
APPENDED_IN_TURN_BYTES: Final = 8 * MIB

# A fetch session reads at most so many of its partitions that have changed, for one response; the others come with the
# next.
SESSION_READS_MAX: Final = 500

# Requests of those APIs above this are served a few at a time: each may take 15 MB, those below it half of one.
LARGE_REQUEST_BYTES: Final = 8 * KIB
# So many of them are served at once, of each API: more would take the memory of all of them, and end no earlier.
LARGE_REQUESTS_AT_ONCE: Final = 4
# Those that wait for it: of Produce, of Fetch, and of all other APIs together.  Each is an eighth of the memory for
# requests, since who is served may take minutes.
WAITING_REQUESTS_BYTES_MAX: Final = 64 * MIB

# The largest request of those APIs.  With 65,536 elements, which is the most, real ones take a tenth of it.
COLD_REQUEST_BYTES_MAX: Final = 16 * MIB

# The largest answer of those APIs: Metadata of two million partitions.  Where elements have their own errors, those
# beyond it get an error; else the connection is closed.
COLD_ANSWER_BYTES_MAX: Final = 64 * MIB

# Answers above this are sent as they are, without a copy, and those of all connections together are bounded.
COPIED_ANSWER_BYTES_MAX: Final = 64 * KIB
UNSENT_ANSWERS_BYTES_MAX: Final = 256 * MIB
# Those for which there is no room; beyond it a request is refused.  One always waits.
WAITING_ANSWERS_BYTES_MAX: Final = 64 * MIB

# Produce requests of one connection whose answers wait for a flush.  Clients keep 5; load tests a few hundred.
ANSWERS_PENDING_MAX: Final = 4_096

# A produce with more partitions than this does not wait together with others, nor does one with a larger answer:
# 4,096 of them would take gigabytes.
PIPELINED_PARTITIONS_MAX: Final = 256
PIPELINED_ANSWER_BYTES_MAX: Final = 16 * KIB

# One turn of the loop sends at most this much for one connection, then serves the others.
SEND_TURN_BYTES: Final = 4 * MIB

# Under TLS bytes are encrypted in slices of four records, which a socket's buffer mostly accepts whole, and one turn
# encrypts less than it could send: a megabyte takes half a millisecond.
TLS_SLICE_BYTES: Final = 64 * KIB
TLS_SEND_TURN_BYTES: Final = MIB
# From the accept to the end of the TLS handshake and the login.
LOGIN_MS: Final = 10_000
# Connections that are not logged in yet: of a listener, and from one address.  A further one closes the oldest.
LOGINS_PENDING_MAX: Final = 1_024
LOGINS_PENDING_PER_ADDRESS_MAX: Final = 256

# A peer must receive some bytes of an answer in each such interval, and send its share of a frame
# (`socket.receive.min.bytes.per.second`).
STALLED_PEER_MS: Final = 30_000
# The same of a frame that holds memory for which others wait.
STALLED_PEER_CONTENDED_MS: Final = 5_000

# Fetches that wait, over all connections; beyond it a fetch is answered at once with the records that there are.
PARKED_FETCHES_MAX: Final = 100_000

# Partitions named by fetches that wait, over all connections (some 300 bytes each); beyond it the same.
PARKED_PARTITIONS_MAX: Final = 1_000_000

# Partitions of DeleteRecords requests that wait for followers (some kilobytes each); beyond it they time out at once.
PARKED_DELETIONS_MAX: Final = 10_000

# What a batch may hold, decompressed, where a topic's settings demand that it is opened: a megabyte of zstd can hold
# gigabytes.  One such batch is opened at a time, so this is the memory of all of them.
OPENED_BATCH_BYTES_MAX: Final = 64 * MIB
# One that holds up to this does not wait for larger ones; it is opened in its own thread, also one at a time.
OPENED_QUICKLY_BYTES_MAX: Final = 2 * MIB
# A compressed batch of so many bytes that holds so many is opened on the event loop: 0.02 to 0.2 ms, where a thread
# takes 0.1 ms.
OPENED_ON_LOOP_BYTES_MAX: Final = 16 * KIB
OPENED_ON_LOOP_PLAIN_BYTES_MAX: Final = 64 * KIB
# The same where it is compressed again.
COMPRESSED_ON_LOOP_BYTES_MAX: Final = 8 * KIB
# An uncompressed batch whose records are walked, at five nanoseconds each.
WALKED_ON_LOOP_BYTES_MAX: Final = MIB
# Records of a batch that is opened, where Python walks them, at one to two microseconds each: at all, and on the loop.
WALKED_IN_PYTHON_RECORDS_MAX: Final = 100_000
WALKED_IN_PYTHON_ON_LOOP_RECORDS_MAX: Final = 256
# Batches that wait for a thread hold their connections' buffers: at most so many bytes of each thread's, for at most so
# long.  Beyond it they get an error that clients retry.
WAITING_BATCHES_BYTES_MAX: Final = 64 * MIB
WAITING_BATCH_MS_MAX: Final = 30_000

# Partitions of all fetch sessions (some 500 bytes each); a session beyond it is not opened, or ended.
SESSION_PARTITIONS_MAX: Final = 500_000

# How often connections are looked at for idleness and stalls, and parked produces for their time-out.
SWEEP_INTERVAL_MS: Final = 500
SHRINK_AFTER_SWEEPS: Final = 2

# A stopping broker waits this long for answers under way.
DRAIN_MS: Final = 5_000
# And then this long for requests whose connections are closed: a change of topics is completed.
STOP_REQUESTS_MS: Final = 10_000

LISTEN_BACKLOG: Final = 1_024
ACCEPTS_PER_TURN: Final = 64

# Of a group's id, in characters, and of the client id that a new member's id starts with.
GROUP_ID_LENGTH_MAX: Final = 1_024
GROUP_CLIENT_ID_LENGTH_MAX: Final = 255
# In characters.
TRANSACTIONAL_ID_LENGTH_MAX: Final = 1_024

# Of the reason for a join or a leave, which is kept for diagnosis; Java's clients cut it at the same length.
GROUP_REASON_LENGTH_MAX: Final = 255

# One member's own data, over all of its protocols.  It is in memory only until the group is written.
GROUP_MEMBER_METADATA_BYTES_MAX: Final = MIB

# Connections of addresses that open them too fast, which wait to be closed; each takes a descriptor.
THROTTLED_SOCKETS_MAX: Final = 256
