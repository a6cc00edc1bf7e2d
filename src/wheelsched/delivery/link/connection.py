"""One connection of a link, on either side.

Invariant: messages written in one iteration of the loop are sent together and in order. The send
queue is bounded: a peer that does not read, or is silent, is cut.

Silence is counted in ticks, not in time: a process that was stopped itself first reads the messages
that arrived meanwhile, and only then considers its peer dead.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from wheelsched.config import LinkConfig
from wheelsched.delivery.link.messages import (
    MAX_FRAME_BYTES,
    FrameReader,
    Message,
    Ping,
    encode,
)
from wheelsched.errors import InvalidFrame, LinkRefused

PING: Final = encode(Ping())


class Connection(asyncio.Protocol):
    """Frames in both directions, and keep-alives.

    `on_frame` gets each frame; it may raise `InvalidFrame` or `LinkRefused`, which close the
    connection. `on_full` is called when too much waits to be sent, `on_drained` when nothing does
    any more, and `on_lost` once, with the reason.
    """

    def __init__(self, config: LinkConfig) -> None:
        self.on_open: Callable[[], None] = _nothing
        self.on_frame: Callable[[bytes], None] = _ignore
        self.on_full: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing
        self.on_lost: Callable[[str], None] = _ignore
        self.is_proven = False
        self.is_full = False
        self._config = config
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._silent_ticks = 0
        self._full_ticks = 0  # since the peer has read anything
        self._waiting_bytes = 0  # at the last tick
        self._is_reading = True
        self._is_lost = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._is_lost

    @property
    def peer(self) -> str:
        """The address of the peer, for logs."""
        address = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if address else "unknown"

    def trust(self) -> None:
        """The peer has proven its identity: it may send long frames and stay."""
        self.is_proven = True
        self._silent_ticks = 0
        self._reader.max_bytes = MAX_FRAME_BYTES

    def send(self, message: Message) -> None:
        """Sends a message with the others of this iteration of the loop."""
        self._send(encode(message))

    def tick(self) -> None:
        """To be called every second."""
        self._silent_ticks += self._is_reading
        waiting, before = self._outgoing_bytes + self._buffered(), self._waiting_bytes
        self._waiting_bytes = waiting
        is_stuck = self.is_full and waiting >= before > 0
        self._full_ticks = self._full_ticks + 1 if is_stuck else 0
        if self._silent_ticks > self._config.silent_ticks:
            self.cut(
                "the peer was silent for too long"
                if self.is_proven
                else "the handshake took too long"
            )
        elif self._full_ticks > self._config.silent_ticks:
            self.cut("the peer does not read")
        elif self.is_proven:
            self._send(PING)

    def cut(self, reason: str) -> None:
        """Ends the connection now. What was not sent is lost."""
        if self._is_lost:
            return
        self._is_lost = True
        self._outgoing.clear()
        if self._transport is not None:
            self._transport.abort()
        self.on_lost(reason)
        self.on_open = self.on_full = self.on_drained = _nothing  # breaks reference cycles
        self.on_frame = self.on_lost = _ignore

    def pause_reading(self) -> None:
        """Lets the peer wait. Its silence does not count meanwhile."""
        if self._is_reading and self._transport is not None and not self._is_lost:
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading and self._transport is not None and not self._is_lost:
            self._is_reading = True
            self._transport.resume_reading()

    # Callbacks of the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # or uvloop's
        self._transport.set_write_buffer_limits(high=0)  # else uvloop delays writes
        if self._is_lost:
            self._transport.abort()
        else:
            self.on_open()

    def data_received(self, data: bytes) -> None:
        if self.is_proven:
            self._silent_ticks = 0
        try:
            for frame in self._reader.feed(data):
                self.on_frame(frame)
        except (InvalidFrame, LinkRefused) as error:
            self.cut(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self.cut("the connection was closed" if error is None else str(error))
        self._transport = None

    def resume_writing(self) -> None:
        self._end_full()

    def _send(self, frame: bytes) -> None:
        if not self.is_open:
            return
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        waiting = self._outgoing_bytes + self._buffered()
        if waiting > self._config.max_buffered_bytes:
            self.cut("too much data is waiting to be sent")
        elif waiting > self._config.full_bytes and not self.is_full:
            self.is_full = True
            self.on_full()

    def _flush(self) -> None:
        frames, self._outgoing = self._outgoing, []
        self._outgoing_bytes = 0
        if self._transport is None or self._is_lost:
            return
        self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if not self._buffered():
            self._end_full()

    def _end_full(self) -> None:
        if self.is_full and not self._outgoing and self.is_open:
            self.is_full = False
            self.on_drained()

    def _buffered(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()


def _nothing() -> None:
    pass


def _ignore(_: object) -> None:
    pass
