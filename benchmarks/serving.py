"""Requests a second of ``casrnn serve``, with many clients at a time on loopback.

    python benchmarks/serving.py RUN [--clients 200] [--requests 4000] [--text "a lovely film"]

Starts the server with the model of RUN, and sends it one request after the other from each client
over a connection that stays open. One in twenty is bad on purpose: it must get a 4xx. Ends with
status 1 where a request is lost, a good one is refused or an answer is a 5xx. Server and clients
share the machine.
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

BAD = (b"{", b'{"text": 1}', b'{"text": "caf\xe9"}', b"[" * 5000, b'{"text": "%s"}' % (b"a" * 9000))
EVERY = 20


def client(netloc: str, body: bytes, count: int, which: int) -> list[tuple[int, float, bool]]:
    """Status (0: no answer), seconds and whether it was a good one, of ``count`` requests."""
    connection, found = http.client.HTTPConnection(netloc, timeout=60), []
    for number in range(count):
        good = number % EVERY != EVERY - 1
        content = body if good else BAD[(number // EVERY + which) % len(BAD)]
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
        found.append((status, time.perf_counter() - start, good))
    connection.close()
    return found


def measure(netloc: str, body: bytes, clients: int, requests: int) -> bool:
    """Print what ``clients`` together measure. Returns whether nothing was lost or refused."""
    each = -(-requests // clients)
    with ThreadPoolExecutor(clients) as pool:
        start = time.perf_counter()
        rows = [
            row
            for found in pool.map(lambda which: client(netloc, body, each, which), range(clients))
            for row in found
        ]
        seconds = time.perf_counter() - start
    times = sorted(1000 * took for _, took, good in rows if good)
    cuts = statistics.quantiles(times, n=100)
    statuses = dict(sorted(Counter(status for status, _, _ in rows).items()))
    print(
        f"{clients} clients: {len(rows) / seconds:.0f} requests/s, milliseconds: median "
        f"{cuts[49]:.1f}, 95 % {cuts[94]:.1f}, 99 % {cuts[98]:.1f}; answers by status: {statuses}"
    )
    return all(status == 200 if good else 400 <= status < 500 for status, _, good in rows)


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
                return 1  # it has said why
            done = [
                measure(address[1], json.dumps(body).encode(), clients, args.requests)
                for clients in sorted({1, args.clients})
            ]
        finally:
            server.terminate()
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
