"""The messages of a link, and their frames: a length of four bytes, and MessagePack.

Invariant: a frame is never longer than its reader allows, and a reader never keeps more than one
incomplete frame.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from wheelsched.core.outcome import Outcome
from wheelsched.errors import InvalidFrame
from wheelsched.ports.work import Attempted, Pool, QueueRun, Receipt, Waiting

VERSION: Final = 1
LENGTH_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 16 << 20
MAX_GREETING_BYTES: Final = 512  # of a peer that has not proven its identity


class Greeting(Struct, frozen=True, array_like=True, tag=1):
    """The shard opens the handshake."""

    version: int
    nonce: bytes


class Hello(Struct, frozen=True, array_like=True, tag=2):
    """The process names itself and the shard that it means, and proves that it knows both keys.

    `knock` proves the key of the shard alone: the shard looks up no process without it.
    """

    version: int
    shard_id: UUID
    process_id: UUID
    nonce: bytes
    knock: bytes
    proof: bytes


class Welcome(Struct, frozen=True, array_like=True, tag=3):
    """The shard proves that it knows both keys."""

    proof: bytes


class Ping(Struct, frozen=True, array_like=True, tag=10):
    """A keep-alive. Both sides send one every second."""


class Lend(Struct, frozen=True, array_like=True, tag=20):
    pool: Pool
    count: int


class Recall(Struct, frozen=True, array_like=True, tag=21):
    call: int
    pool: Pool
    count: int


class Forget(Struct, frozen=True, array_like=True, tag=22):
    pool: Pool


class Finish(Struct, frozen=True, array_like=True, tag=23):
    call: int
    outcomes: Sequence[tuple[Attempted, Outcome]]


class GiveBack(Struct, frozen=True, array_like=True, tag=24):
    attempts: Sequence[Attempted]


class AskWaiting(Struct, frozen=True, array_like=True, tag=25):
    call: int
    tenant_id: UUID


class HandOut(Struct, frozen=True, array_like=True, tag=30):
    pool: Pool
    runs: Sequence[QueueRun]
    until_us: int


class Cancel(Struct, frozen=True, array_like=True, tag=31):
    attempts: Sequence[Attempted]


class Wait(Struct, frozen=True, array_like=True, tag=32):
    tenant_id: UUID
    queue: str
    count: int


class Returned(Struct, frozen=True, array_like=True, tag=33):
    """The answer to `Recall`."""

    call: int
    count: int


class Receipts(Struct, frozen=True, array_like=True, tag=34):
    """The answer to `Finish`."""

    call: int
    receipts: Sequence[Receipt]


class WaitingAnswer(Struct, frozen=True, array_like=True, tag=35):
    """The answer to `AskWaiting`."""

    call: int
    waiting: Sequence[Waiting]


ToShard: TypeAlias = Ping | Lend | Recall | Forget | Finish | GiveBack | AskWaiting
FromShard: TypeAlias = Ping | HandOut | Cancel | Wait | Returned | Receipts | WaitingAnswer
Message: TypeAlias = Greeting | Hello | Welcome | ToShard | FromShard

Received = TypeVar("Received")

_ENCODER: Final = msgspec.msgpack.Encoder(uuid_format="bytes")


def encode(message: Message) -> bytes:
    """The frame of a message."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Decoder(Generic[Received]):
    """Reads messages of one kind."""

    def __init__(self, kind: type[Received]) -> None:
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(kind)

    def decode(self, body: bytes | memoryview) -> Received:
        """Raises `InvalidFrame`."""
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidFrame(f"the peer of a link sent an invalid message: {error}") from error


GREETING: Final[Decoder[Greeting]] = Decoder(Greeting)
HELLO: Final[Decoder[Hello]] = Decoder(Hello)
WELCOME: Final[Decoder[Welcome]] = Decoder(Welcome)
TO_SHARD: Final[Decoder[ToShard]] = Decoder(ToShard)  # type: ignore[arg-type]
FROM_SHARD: Final[Decoder[FromShard]] = Decoder(FromShard)  # type: ignore[arg-type]


class FrameReader:
    """Cuts a stream into the bodies of its frames."""

    def __init__(self, max_bytes: int = MAX_GREETING_BYTES) -> None:
        self.max_bytes = max_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are complete now. Raises `InvalidFrame` if one is too long."""
        self._rest += data
        while len(self._rest) >= LENGTH_BYTES:
            length = int.from_bytes(self._rest[:LENGTH_BYTES], "big")
            if length > self.max_bytes:
                raise InvalidFrame(
                    f"the peer of a link sent a frame of {length:,} bytes; at most "
                    f"{self.max_bytes:,} are allowed"
                )
            end = LENGTH_BYTES + length
            if len(self._rest) < end:
                return
            body = bytes(self._rest[LENGTH_BYTES:end])
            del self._rest[:end]
            yield body
