"""The JSON of runs that are handed out, joined from the bytes that the shard has prepared.

Invariant: no run is encoded here, so a batch costs one join.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from wheelsched.ports.work import QueueRun
from wheelsched.wire.callback import write_instant
from wheelsched.wire.stream import MAX_FRAME_BYTES

_CLAIM: Final = b'{"runs":['
_RUNS: Final = b'{"type":"runs","runs":['


def claim_answer(runs: Sequence[QueueRun], expires_us: int) -> bytes:
    """The answer to a claim."""
    return _CLAIM + _joined([run.content for run in runs], expires_us) + b"]}"


def run_frames(runs: Sequence[QueueRun], expires_us: int) -> Iterator[bytes]:
    """Messages of the stream with these runs."""
    contents = [run.content for run in runs]
    if sum(map(len, contents)) <= MAX_FRAME_BYTES:
        yield _RUNS + _joined(contents, expires_us) + b"]}"
        return
    begin = size = 0
    for end, content in enumerate(contents):
        if end > begin and size + len(content) > MAX_FRAME_BYTES:
            yield _RUNS + _joined(contents[begin:end], expires_us) + b"]}"
            begin, size = end, 0
        size += len(content)
    yield _RUNS + _joined(contents[begin:], expires_us) + b"]}"


def _joined(contents: Sequence[bytes], expires_us: int) -> bytes:
    if not contents:
        return b""
    end = f',"lease_expires_at":"{write_instant(expires_us)}"}}'.encode()
    return (end + b",").join(contents) + end
