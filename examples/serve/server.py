"""A server for `sweep.yaml`: answers in batches, as an inference server does. Settings are flags.

A batch takes 4 ms and 1 ms for each request in it; it begins when it is full, or when its first request has
waited long enough.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json


class Batches:
    """Requests wait here until their batch is done."""

    def __init__(self, size: int, wait_s: float) -> None:
        self._size = size
        self._wait_s = wait_s
        self._waiting: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()

    async def ask(self) -> int:
        """The answer to one request: the size of its batch."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        await self._waiting.put(answer)
        return await answer

    async def run(self) -> None:
        """One batch after the other."""
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._waiting.get()]
            until = loop.time() + self._wait_s
            while len(batch) < self._size and (left_s := until - loop.time()) > 0:
                with contextlib.suppress(TimeoutError):
                    batch.append(await asyncio.wait_for(self._waiting.get(), left_s))
            await asyncio.sleep(0.004 + 0.001 * len(batch))
            for answer in batch:
                if not answer.done():  # its client may have left
                    answer.set_result(len(batch))


async def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--wait-ms", type=float, default=2.0)
    args = parser.parse_args()
    batches = Batches(args.max_batch, args.wait_ms / 1000)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while (line := await reader.readline()).strip():
                while (await reader.readline()).strip():  # headers are not looked at
                    pass
                is_health = b" /health" in line
                body = json.dumps({"batch": 0 if is_health else await batches.ask()}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", args.port)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(batches.run())
        tasks.create_task(server.serve_forever())


if __name__ == "__main__":
    asyncio.run(main())
