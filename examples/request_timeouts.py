"""An echo server that hangs up on silent clients: one timer per connection, moved by each line.

With a hundred thousand connections, moving a timer is still one store in the wheel.
"""

import asyncio

from wheelsched.aio import AsyncWheel

IDLE_S = 0.5


async def serve(
    wheel: AsyncWheel[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    idle = wheel.call_later(IDLE_S, writer.close)
    try:
        while line := await reader.readline():
            idle.reschedule_later(IDLE_S)
            writer.write(line)
    finally:
        idle.cancel()
        writer.close()


async def talk(port: int, name: str, lines: int) -> None:
    """Say some lines in quick succession, then nothing more, and wait for the hang-up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    start_s = asyncio.get_running_loop().time()
    for number in range(lines):
        writer.write(b"line %d\n" % number)
        await reader.readline()
        await asyncio.sleep(0.05)
    assert await reader.read() == b""
    writer.close()
    connected_s = asyncio.get_running_loop().time() - start_s
    print(f"{name}: hung up on after {connected_s:.2f} s")


async def main() -> None:
    async with AsyncWheel[None]() as wheel:
        server = await asyncio.start_server(
            lambda reader, writer: serve(wheel, reader, writer), "127.0.0.1"
        )
        async with server:
            port = server.sockets[0].getsockname()[1]
            await asyncio.gather(talk(port, "silent", lines=0), talk(port, "talkative", lines=10))


if __name__ == "__main__":
    asyncio.run(main())
