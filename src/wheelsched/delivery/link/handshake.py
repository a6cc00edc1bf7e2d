"""The handshake of a link: both sides prove that they have read both rows of the database.

```
shard                                            process
  │ ── Greeting: version, nonce ───────────────────► │
  │ ◄─ Hello: both ids, nonce, knock, proof ──────── │
  │ ── Welcome: proof ─────────────────────────────► │
```

Invariant: a proof holds for one connection, one direction and one pair of ids. It covers both
nonces, so it cannot be replayed; it names the side that made it, so it cannot be reflected.
"""

import hmac
from secrets import token_bytes
from typing import Final
from uuid import UUID

from msgspec import Struct

from wheelsched.delivery.link.messages import VERSION, Greeting, Hello, Welcome
from wheelsched.errors import LinkRefused

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 32
LABEL: Final = b"wheelsched link"


class Identity(Struct, frozen=True):
    """A shard or a process, and the key in its row."""

    id: UUID
    key: bytes

    def __post_init__(self) -> None:
        if len(self.key) < KEY_BYTES:
            raise LinkRefused(f"the key of {self.id} is too short")

    def __repr__(self) -> str:
        return f"Identity({self.id})"  # the key is secret


def new_key() -> bytes:
    """A key for a row."""
    return token_bytes(KEY_BYTES)


class ShardHandshake:
    """The side of the shard."""

    def __init__(self, shard: Identity) -> None:
        self._shard = shard
        self._nonce = token_bytes(NONCE_BYTES)

    def greet(self) -> Greeting:
        return Greeting(VERSION, self._nonce)

    def check_knock(self, hello: Hello) -> None:
        """Raises `LinkRefused` unless the process knows the key of this shard."""
        _check_version(hello.version)
        if hello.shard_id != self._shard.id:
            raise LinkRefused(f"the process expected another shard, {hello.shard_id}")
        if len(hello.nonce) != NONCE_BYTES:
            raise LinkRefused("the nonce of the process has the wrong length")
        text = _text(b"knock", hello, self._nonce)
        _check(hello.knock, _prove(self._shard.key, text))

    def accept(self, hello: Hello, process: Identity) -> Welcome:
        """The answer to a process that has proven its key. Raises `LinkRefused`."""
        self.check_knock(hello)
        key = self._shard.key + process.key
        if hello.process_id != process.id:
            raise LinkRefused
        _check(hello.proof, _prove(key, _text(b"process", hello, self._nonce)))
        return Welcome(_prove(key, _text(b"shard", hello, self._nonce)))


class ProcessHandshake:
    """The side of the process that connects."""

    def __init__(self, process: Identity, shard: Identity) -> None:
        self._process = process
        self._shard = shard
        self._key = shard.key + process.key
        self._expected: bytes | None = None

    def answer(self, greeting: Greeting) -> Hello:
        """Raises `LinkRefused` if the shard speaks another version."""
        _check_version(greeting.version)
        if len(greeting.nonce) != NONCE_BYTES:
            raise LinkRefused("the nonce of the shard has the wrong length")
        hello = Hello(
            version=VERSION,
            shard_id=self._shard.id,
            process_id=self._process.id,
            nonce=token_bytes(NONCE_BYTES),
            knock=b"",
            proof=b"",
        )
        self._expected = _prove(self._key, _text(b"shard", hello, greeting.nonce))
        return Hello(
            version=hello.version,
            shard_id=hello.shard_id,
            process_id=hello.process_id,
            nonce=hello.nonce,
            knock=_prove(self._shard.key, _text(b"knock", hello, greeting.nonce)),
            proof=_prove(self._key, _text(b"process", hello, greeting.nonce)),
        )

    def check(self, welcome: Welcome) -> None:
        """Raises `LinkRefused` unless the shard has proven its key."""
        if self._expected is None:
            raise LinkRefused("the shard sent its proof before its nonce")
        _check(welcome.proof, self._expected)


def _text(side: bytes, hello: Hello, shard_nonce: bytes) -> bytes:
    """What a proof covers. All parts but the side have a fixed length."""
    ids = hello.shard_id.bytes + hello.process_id.bytes
    version = hello.version.to_bytes(4, "big")
    return b"\x00".join((LABEL, side, version + ids + shard_nonce + hello.nonce))


def _prove(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _check(given: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(given, expected):
        raise LinkRefused


def _check_version(version: int) -> None:
    if version != VERSION:
        raise LinkRefused(
            f"the peer uses version {version} of the link protocol, and this process {VERSION}; "
            "run the same version of wheelsched everywhere"
        )
