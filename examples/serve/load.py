"""The load for `sweep.yaml`: clients ask as fast as they are answered; prints latency and throughput."""

from __future__ import annotations

import argparse
import asyncio
import time


async def client(port: int, requests: int, latencies: list[float]) -> None:
    """Ask one after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(requests):
        began = time.perf_counter()
        writer.write(b"GET /answer HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while (await reader.readline()).strip():
            pass
        await reader.readuntil(b"}")
        latencies.append(time.perf_counter() - began)
    writer.close()


async def main() -> None:
    """Ask, and print one line that the sweep reads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=20)
    args = parser.parse_args()
    latencies: list[float] = []
    began = time.perf_counter()
    await asyncio.gather(*(client(args.port, args.requests, latencies) for _ in range(args.clients)))
    took_s = time.perf_counter() - began
    p95 = sorted(latencies)[int(0.95 * len(latencies))]
    print(f"p95_ms={1000 * p95:.2f} throughput={len(latencies) / took_s:.1f}")


if __name__ == "__main__":
    asyncio.run(main())
