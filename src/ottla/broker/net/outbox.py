"""A connection's outgoing data: bytes and runs of files, in order, as fast as its peer receives them."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, cast

from ottla.broker.net.limits import SEND_TURN_BYTES, TLS_SEND_TURN_BYTES, TLS_SLICE_BYTES
from ottla.broker.net.response_budget import CountedAnswer
from ottla.broker.net.socket_loop import PeerSocket, SocketLoop
from ottla.broker.net.tls_channel import TlsChannel
from ottla.runtime.disk import FileRun

_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)

# A run so short is copied into the bytes around it: one read and one send instead of two sends and a sendfile, which
# cost 2.5 us more of processor time for any run up to here; from 32 KiB on sendfile is cheaper.
_COPIED_RUN_BYTES: Final = 16 * 1024
# The most that one answer's runs take as copies: a peer that does not receive shall not hold more memory.
_COPIED_BYTES: Final = 64 * 1024

# What the sending of a piece counts for at least in a turn: each is a call of the system.
_PIECE_BYTES_MIN: Final = 16 * 1024
_PIECES_OF_TURN: Final = SEND_TURN_BYTES // _PIECE_BYTES_MIN

Piece = bytes | bytearray | memoryview | FileRun | CountedAnswer


class Outbox:
    """The sending half of a socket.

    `add` collects this turn's small answers, which one `send` sends; bytes that the socket does not accept wait for it
    to become writable.  `on_progress` is called when the peer has received some of those, `on_failed` when the socket
    failed.
    """

    __slots__ = (
        "_file_target",
        "_is_writing",
        "_lines",
        "_loop",
        "_on_failed",
        "_on_progress",
        "_socket",
        "_turn_bytes",
        "unsent",
    )

    def __init__(
        self,
        peer: PeerSocket,
        loop: SocketLoop,
        on_progress: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._socket: Final = peer
        # None: bytes of files must pass through the channel, which encrypts them.
        self._file_target: Final = None if isinstance(peer, TlsChannel) else cast("socket.socket", peer)
        self._turn_bytes: Final = TLS_SEND_TURN_BYTES if self._file_target is None else SEND_TURN_BYTES
        self._loop = loop
        self._on_progress = on_progress
        self._on_failed = on_failed
        self._lines: list[bytes | bytearray] = []
        # What was sent, and the peer has not yet received.  Read for each frame, and changed here alone.
        self.unsent: Final[deque[Piece]] = deque()
        self._is_writing = False

    @property
    def unsent_answer(self) -> CountedAnswer | None:
        """A large answer that the peer has not yet received."""
        # It is a separate piece, after its head.
        return next((piece for piece in islice(self.unsent, 2) if isinstance(piece, CountedAnswer)), None)

    @property
    def is_empty(self) -> bool:
        return not self.unsent and not self._lines

    def add(self, data: bytes) -> None:
        """A whole answer, for the next `send`."""
        self._lines.append(data)

    def add_pieces(self, pieces: Sequence[Piece]) -> None:
        """An answer in pieces, after everything that was added before."""
        if len(pieces) > _PIECES_OF_TURN:
            self._join_lines()
            self.unsent.extend(pieces)
            return
        left_bytes = _COPIED_BYTES
        for piece in pieces:
            if not self.unsent:
                if type(piece) is bytes or type(piece) is bytearray:
                    self._lines.append(piece)
                    continue
                if isinstance(piece, FileRun) and piece.length_bytes <= min(_COPIED_RUN_BYTES, left_bytes):
                    copy = _copied(piece)
                    if copy is not None:
                        left_bytes -= len(copy)
                        self._lines.append(copy)
                        continue
            self._join_lines()
            self.unsent.append(piece)

    def send(self) -> None:
        """Send as much as the socket accepts; the rest follows when it is writable."""
        if self.unsent:
            self._join_lines()
            if not self._is_writing:
                self._send_unsent()
            return
        lines = self._lines
        if not lines:
            return
        data = lines[0] if len(lines) == 1 else b"".join(lines)
        lines.clear()
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._on_failed(f"send failed: {error}")
            return
        if sent < len(data):
            self.unsent.append(memoryview(data)[sent:])
            self._wait_writable()

    def close(self) -> None:
        """Drop everything; before the socket is closed."""
        if self._is_writing:
            self._loop.remove_writer(self._socket.fileno())
            self._is_writing = False
        self.unsent.clear()
        self._lines.clear()

    def _join_lines(self) -> None:
        lines = self._lines
        if lines:
            self.unsent.append(lines[0] if len(lines) == 1 else b"".join(lines))
            lines.clear()

    def _send_unsent(self) -> None:
        unsent = self.unsent
        turn_bytes = self._turn_bytes
        try:
            while unsent and turn_bytes > 0:
                turn_bytes -= max(self._send_piece(unsent), _PIECE_BYTES_MIN)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._on_failed(f"send failed: {error}")
            return
        if unsent:
            self._wait_writable()

    def _send_piece(self, unsent: deque[Piece]) -> int:
        """Send from the first piece; returns the bytes that the socket accepted."""
        piece = unsent[0]
        if isinstance(piece, FileRun):
            target = self._file_target
            if target is None:
                sent = self._send_copied(piece)
            else:
                sent = piece.file.send_to(target, piece.position, piece.length_bytes)
            if sent == 0:
                raise OSError(f"{piece.file.path} ends before the {piece.length_bytes} bytes promised")
            if sent == piece.length_bytes:
                unsent.popleft()
            else:
                unsent[0] = FileRun(piece.file, piece.position + sent, piece.length_bytes - sent)
            return sent
        more = _MSG_MORE if len(unsent) > 1 else 0
        if isinstance(piece, CountedAnswer):
            sent = self._socket.send(piece.view, more)
            piece.view = piece.view[sent:]
            if not piece.view:
                unsent.popleft()
            return sent
        sent = self._socket.send(piece, more)
        if sent == len(piece):
            unsent.popleft()
        else:
            unsent[0] = memoryview(piece)[sent:]
        return sent

    def _send_copied(self, run: FileRun) -> int:
        """Send the first slice of a run; 0: the file ends before it."""
        data = run.file.read_at(run.position, min(run.length_bytes, TLS_SLICE_BYTES))
        return self._socket.send(data) if data else 0

    def _wait_writable(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        self._send_unsent()
        if not self._is_writing:
            return  # the socket failed, and this box is closed
        if not self.unsent:
            self._loop.remove_writer(self._socket.fileno())
            self._is_writing = False
        self._on_progress()


def _copied(run: FileRun) -> bytes | None:
    """The run's bytes; None when they cannot be read, which sending them will report."""
    try:
        data = run.file.read_at(run.position, run.length_bytes)
    except OSError:
        return None
    return data if len(data) == run.length_bytes else None
