"""Load test of ``casrnn serve``: requests per second from many concurrent clients on loopback.

    python benchmarks/serving.py RUN [--clients 200] [--requests 4000] [--text "a lovely film"]

Starts the server with the model of RUN. Each client sends its requests one after another over a
persistent connection. Every twentieth request is deliberately invalid and must get a 4xx response.
The exit status is 1 if a request is lost, a valid one is refused, or the server responds with a
5xx. Server and clients share the machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import machine

INVALID = (
    b"{",
    b'{"text": 1}',
    b'{"text": "caf\xe9"}',
    b"[" * 5000,
    b'{"text": "%s"}' % (b"a" * 9000),
)
EVERY = 20


def client(netloc: str, body: bytes, count: int, which: int) -> list[tuple[int, float, bool]]:
    """Send ``count`` requests: status (0: no response), seconds, and whether each was valid."""
    connection, found = http.client.HTTPConnection(netloc, timeout=60), []
    for number in range(count):
        valid = number % EVERY != EVERY - 1
        content = body if valid else INVALID[(number // EVERY + which) % len(INVALID)]
        start = time.perf_counter()
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/predict", content, headers)
            response = connection.getresponse()
            response.read()
            status = response.status
        except (OSError, http.client.HTTPException):
            connection.close()
            status = 0
        found.append((status, time.perf_counter() - start, valid))
    connection.close()
    return found


def measure(netloc: str, body: bytes, clients: int, requests: int) -> bool:
    """Print the results of ``clients`` clients; return whether all responses were as expected."""
    each = -(-requests // clients)
    with ThreadPoolExecutor(clients) as pool:
        start = time.perf_counter()
        rows = [
            row
            for found in pool.map(lambda which: client(netloc, body, each, which), range(clients))
            for row in found
        ]
        seconds = time.perf_counter() - start
    times = sorted(1000 * took for _, took, valid in rows if valid)
    cuts = statistics.quantiles(times, n=100)
    statuses = dict(sorted(Counter(status for status, _, _ in rows).items()))
    print(
        f"{clients} clients: {len(rows) / seconds:.0f} requests/s, milliseconds: median "
        f"{cuts[49]:.1f}, 95 % {cuts[94]:.1f}, 99 % {cuts[98]:.1f}; answers by status: {statuses}"
    )
    return all(status == 200 if valid else 400 <= status < 500 for status, _, valid in rows)


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", help="checkpoint, or its folder")
    parser.add_argument("--clients", type=machine.positive, default=200)
    parser.add_argument("--requests", type=machine.positive, default=4000)
    parser.add_argument("--text", default="a lovely film")
    parser.add_argument("--pair", help="second sentence, for models of pairs")
    args = parser.parse_args()
    body = {"text": args.text, **({"pair": args.pair} if args.pair else {})}
    busy = machine.busy_cores()
    print(f"{machine.name()}; {busy:.1f} cores busy with other work")
    command = [sys.executable, "-m", "fairseq_casrnn.cli", "serve", "--path", args.run]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://([^/]+)/", server.stdout.readline())
            if address is None:
                return 1  # the server has printed the reason
            done = [
                measure(address[1], json.dumps(body).encode(), clients, args.requests)
                for clients in sorted({1, args.clients})
            ]
        finally:
            server.terminate()
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
