"""Compares grpcio (grpc.aio) and grpclib as the server of workers that pull.

Each server runs in its own process, on uvloop, with the messages of `dispatcher.proto`. The client
is grpcio in both cases, so the difference is the server's. Prints CPU of the server per unit, which
other processes on the machine disturb less than throughput, and the throughput that the client saw.

    python -m pip install --group grpc-libraries
    python benchmarks/grpc_libraries.py
"""

import argparse
import asyncio
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[1] / "src"
PROTO = "wheelsched/v1/dispatcher.proto"
SERVICE = "wheelsched.v1.SchedulerDispatcher"
METHODS = ("ClaimTriggers", "UpdateAttemptStatus", "Work")
RUNS = 100
RUN = {
    "run_id": f"{'0' * 32}-1767225600000000",
    "job_id": "00000000-0000-0000-0000-000000000000",
    "job_name": "weekly-report",
    "queue": "billing",
    "attempt": 1,
    "fencing_token": 4_294_967_297,
    "idempotency_key": f"{'0' * 32}:1767225600",
    "trigger": "schedule",
    "timeout_ms": 120_000,
    "payload": {"text": "x" * 189},  # 200 bytes
}


def messages(folder: str) -> Any:
    """The message classes, compiled from the file."""
    from grpc_tools import protoc  # noqa: PLC0415 - not needed to import this module

    if not (Path(folder) / "wheelsched").exists():
        assert protoc.main(["", f"-I{SOURCES}", f"--python_out={folder}", PROTO]) == 0
    sys.path.insert(0, folder)
    return importlib.import_module("wheelsched.v1.dispatcher_pb2")


def encoder(pb: Any) -> Callable[[], Any]:
    """Builds the message of a run from its JSON, as the server does."""
    import msgspec  # noqa: PLC0415

    content = json.dumps(RUN, separators=(",", ":")).encode()
    fields = {"run_id": str, "job_id": str, "job_name": str, "queue": str, "attempt": int}
    fields |= {"fencing_token": int, "idempotency_key": str, "trigger": str, "timeout_ms": int}
    run = msgspec.defstruct("Run", [*fields.items(), ("payload", msgspec.Raw)])
    decode = msgspec.json.Decoder(run).decode

    def encode() -> Any:
        read: Any = decode(content)
        return pb.TaskPayload(
            trigger_id=read.run_id,
            job_id=read.job_id,
            tenant_id=read.job_id,
            job_type=read.queue,
            payload_json=bytes(read.payload).decode(),
            scheduled_time_epoch=1_767_225_600,
            attempt_id=f"{read.run_id}:{read.fencing_token}",
            job_name=read.job_name,
            attempt=read.attempt,
            fencing_token=read.fencing_token,
            idempotency_key=read.idempotency_key,
            trigger=read.trigger,
            timeout_ms=read.timeout_ms,
            scheduled_time_ms=1_767_225_600_000,
            lease_expires_ms=1_767_225_605_000,
        )

    return encode


class Answers:
    """What both servers answer: a stream gets as many runs as it has given credits."""

    def __init__(self, pb: Any) -> None:
        self.pb = pb
        self.encode = encoder(pb)

    def claim(self, request: Any) -> Any:
        tasks = [self.encode() for _ in range(request.max_tasks)]
        return self.pb.ClaimTriggersResponse(tasks=tasks)

    def batches(self, message: Any) -> list[Any]:
        """`hello` for one run per message, `credits` for 100."""
        if message.WhichOneof("message") == "hello":
            return [self._runs(1) for _ in range(message.hello.credits)]
        return [self._runs(RUNS) for _ in range(message.credits.credits // RUNS)]

    def _runs(self, count: int) -> Any:
        runs = self.pb.Runs(tasks=[self.encode() for _ in range(count)])
        return self.pb.SchedulerMessage(runs=runs)


async def serve_grpcio(answers: Answers) -> int:
    import grpc  # noqa: PLC0415

    pb = answers.pb

    async def claim(request: Any, context: Any) -> Any:
        return answers.claim(request)

    async def update(request: Any, context: Any) -> Any:
        return pb.UpdateAttemptResponse(success=True)

    async def work(requests: AsyncIterator[Any], context: Any) -> None:
        async for message in requests:
            for batch in answers.batches(message):
                await context.write(batch)

    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handlers = {
        "ClaimTriggers": unary(
            claim, pb.ClaimTriggersRequest.FromString, pb.ClaimTriggersResponse.SerializeToString
        ),
        "UpdateAttemptStatus": unary(
            update, pb.UpdateAttemptRequest.FromString, pb.UpdateAttemptResponse.SerializeToString
        ),
        "Work": stream(work, pb.WorkerMessage.FromString, pb.SchedulerMessage.SerializeToString),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port: int = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    globals()["_server"] = server  # it stops when it is collected
    return port


async def serve_grpclib(answers: Answers) -> int:
    from grpclib.const import Cardinality, Handler  # noqa: PLC0415
    from grpclib.server import Server  # noqa: PLC0415

    pb = answers.pb

    async def claim(stream: Any) -> None:
        await stream.send_message(answers.claim(await stream.recv_message()))

    async def update(stream: Any) -> None:
        await stream.recv_message()
        await stream.send_message(pb.UpdateAttemptResponse(success=True))

    async def work(stream: Any) -> None:
        async for message in stream:
            for batch in answers.batches(message):
                await stream.send_message(batch)

    class Servicer:
        def __mapping__(self) -> dict[str, Handler]:
            one, many = Cardinality.UNARY_UNARY, Cardinality.STREAM_STREAM
            kinds = {
                "ClaimTriggers": (claim, one, pb.ClaimTriggersRequest, pb.ClaimTriggersResponse),
                "UpdateAttemptStatus": (
                    update,
                    one,
                    pb.UpdateAttemptRequest,
                    pb.UpdateAttemptResponse,
                ),
                "Work": (work, many, pb.WorkerMessage, pb.SchedulerMessage),
            }
            return {f"/{SERVICE}/{name}": Handler(*kind) for name, kind in kinds.items()}

    server = Server([Servicer()])
    await server.start("127.0.0.1", 0)
    port: int = server._server.sockets[0].getsockname()[1]  # noqa: SLF001
    globals()["_server"] = server
    return port


async def serve(library: str, folder: str) -> None:
    """Serves; writes its CPU and memory for each line that it reads."""
    start = serve_grpcio if library == "grpcio" else serve_grpclib
    print(await start(Answers(messages(folder))), flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        used = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        rss = pages * os.sysconf("SC_PAGE_SIZE")
        print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "rss": rss}), flush=True)


class Client:
    """Measures one server."""

    def __init__(self, pb: Any, process: subprocess.Popen[str]) -> None:
        import grpc  # noqa: PLC0415

        assert process.stdout is not None
        self._grpc = grpc
        self._pb = pb
        self._process = process
        self._address = f"127.0.0.1:{int(process.stdout.readline())}"

    def usage(self) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        used: dict[str, float] = json.loads(self._process.stdout.readline())
        return used

    def channel(self) -> Any:
        options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
        return self._grpc.aio.insecure_channel(self._address, options=options)

    def calls(self, channel: Any) -> tuple[Any, Any, Any]:
        pb = self._pb
        kinds = (pb.ClaimTriggersResponse, pb.UpdateAttemptResponse, pb.SchedulerMessage)
        made = (channel.unary_unary, channel.unary_unary, channel.stream_stream)
        claim, update, work = (
            call(
                f"/{SERVICE}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=kind.FromString,
            )
            for call, name, kind in zip(made, METHODS, kinds, strict=True)
        )
        return claim, update, work

    async def measure(self, units: int, act: Callable[[], Any]) -> tuple[float, float]:
        """CPU of the server per unit in µs, and units per second."""
        before, begun = self.usage(), time.perf_counter()
        await act()
        took = time.perf_counter() - begun
        return (self.usage()["cpu"] - before["cpu"]) / units * 1e6, units / took

    async def claims(self, count: int) -> None:
        async with self.channel() as channel:
            claim, _, _ = self.calls(channel)
            request = self._pb.ClaimTriggersRequest(worker_id="w", max_tasks=RUNS, queues=["q"])

            async def claim_some() -> None:
                for _ in range(count // 8):
                    assert len((await claim(request)).tasks) == RUNS

            await asyncio.gather(*(claim_some() for _ in range(8)))

    async def updates(self, count: int) -> None:
        async with self.channel() as channel:
            _, update, _ = self.calls(channel)
            request = self._pb.UpdateAttemptRequest(attempt_id="a" * 60, status="SUCCEEDED")

            async def update_some() -> None:
                for _ in range(count // 64):
                    assert (await update(request)).success

            await asyncio.gather(*(update_some() for _ in range(64)))

    async def stream(self, message: Any, runs: int) -> None:
        async with self.channel() as channel:
            call = self.calls(channel)[2]()
            await call.write(message)
            while runs > 0:
                runs -= len((await call.read()).runs.tasks)
            assert runs == 0
            await call.done_writing()
            call.cancel()

    async def memory(self, workers: int) -> tuple[float, float]:
        """Memory of the server, in MB, and per connected worker, in kB."""
        before = self.usage()["rss"]
        channels = [self.channel() for _ in range(workers)]
        calls = []
        for channel in channels:
            call = self.calls(channel)[2]()
            await call.write(self._pb.WorkerMessage(hello=self._pb.Hello(credits=1)))
            await call.read()
            calls.append(call)
        after = self.usage()["rss"]
        for call in calls:
            call.cancel()
        for channel in channels:
            await channel.close()
        return before / 1e6, (after - before) / workers / 1e3


async def measure(library: str, folder: str, scale: int) -> dict[str, str]:
    pb = messages(folder)
    command = [sys.executable, __file__, "--serve", library, folder]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        client = Client(pb, process)
        await client.claims(80)  # warm up
        memory, per_worker = await client.memory(500)
        claims, updates, streamed = 100 * scale, 640 * scale, 2_000 * scale
        one = pb.WorkerMessage(hello=pb.Hello(credits=streamed))
        many = pb.WorkerMessage(credits=pb.AddCredits(credits=streamed * 5))
        found = {
            "claims of 100": await client.measure(claims * RUNS, lambda: client.claims(claims)),
            "stream, 100 runs per message": await client.measure(
                streamed * 5, lambda: client.stream(many, streamed * 5)
            ),
            "stream, 1 run per message": await client.measure(
                streamed, lambda: client.stream(one, streamed)
            ),
            "unary status calls": await client.measure(updates, lambda: client.updates(updates)),
        }
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(10)
    rows = {name: f"{cpu:6.1f} µs  {rate:9,.0f}/s" for name, (cpu, rate) in found.items()}
    rows["memory"] = f"{memory:6.1f} MB {per_worker:6.1f} kB per worker"
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    import uvloop  # noqa: PLC0415

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if given.serve:
            runner.run(serve(*given.serve))
            return
        with tempfile.TemporaryDirectory() as folder:
            for number in range(given.rounds):
                for library in ("grpcio", "grpclib"):
                    for name, row in runner.run(measure(library, folder, given.scale)).items():
                        print(f"round {number + 1}  {library:8} {name:30} {row}", flush=True)


if __name__ == "__main__":
    main()
