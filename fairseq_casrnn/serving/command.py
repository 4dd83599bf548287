"""``casrnn serve``: a page and a JSON API for a trained model."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import logging
import signal
import socket
from pathlib import Path

from fairseq_casrnn.data.command import show
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.serving.loading import load

SECONDS_TO_STOP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "A page to put text to a model and see what it does, and a JSON API (POST /predict), for "
        "models of every kind. It answers this machine alone unless --host says otherwise; Ctrl+C "
        "stops it."
    )
    parser.add_argument(
        "--path", required=True, type=Path, help="checkpoint, its folder, or a file of casrnn pack"
    )
    parser.add_argument("--data", help="folder of its dictionaries (that of the training)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free (8000)")
    parser.add_argument(
        "--batch-size", type=int, default=32, help="requests that are answered together (32)"
    )
    parser.add_argument(
        "--max-characters", type=int, default=2000, help="of the longest text (2000)"
    )
    parser.add_argument("--beam", type=int, default=5, help="beam size of translation (5)")


def run(args: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        UserError: Starlette and its companions are not installed, an option is out of range, the
            model cannot be served, or the address is taken.
    """
    for option, least in (("port", 0), ("batch_size", 1), ("max_characters", 1)):
        if (value := getattr(args, option)) < least:
            name = option.replace("_", "-")
            raise UserError(f"--{name} is {value}; it must be at least {least}")
    try:
        import uvicorn

        from fairseq_casrnn.serving.app import LOOPBACK, Settings, make_app
    except ImportError as error:
        if error.name not in ("uvicorn", "starlette", "prometheus_client"):
            raise
        raise UserError(
            f"casrnn serve needs {error.name}; install it with pip install 'fairseq-casrnn[serve]'"
        ) from None
    with listening(args.host, args.port) as listener:
        answering = load(args)
        settings = Settings(
            name="/".join(args.path.resolve().parts[-4:]).lstrip("/"),
            batch_size=args.batch_size,
            max_characters=args.max_characters,
            hosts=LOOPBACK if is_loopback(args.host) else (),
        )
        config = uvicorn.Config(
            make_app(answering, settings),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=SECONDS_TO_STOP,
        )
        address, port = listener.getsockname()[:2]
        where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        show([f"serving {settings.name}, a {answering.kind}, at http://{where}/ (Ctrl+C stops it)"])
        with stopped_by_signals(), no_log():
            uvicorn.Server(config).run(sockets=[listener])
    show(["stopped"])


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises UserError where it cannot."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen at {host}, port {port} ({reason}); give another --port or --host"
        ) from None
    # asyncio sees to that for sockets that it makes; an answer would wait 40 ms for the client.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


@contextlib.contextmanager
def stopped_by_signals():
    """SIGINT and SIGTERM, which stop the server, do not end the program as well.

    uvicorn raises again what stopped it.
    """
    before = {
        number: signal.signal(number, lambda *ignored: None)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def no_log():
    """What fairseq logs for each request goes nowhere; :func:`.captured_log` would collect it."""
    root = logging.getLogger()
    handlers, root.handlers[:] = root.handlers[:], [logging.NullHandler()]
    try:
        yield
    finally:
        root.handlers[:] = handlers
