"""``casrnn serve``: a page and a JSON API for a trained model."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import socket
from pathlib import Path

from fairseq_casrnn.console.program import show
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.serving.loading import load

SHUTDOWN_SECONDS = 10
SHOWN_PARTS = 4  # of a path: DIR/out/SYSTEM/seedN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Serve a web page where you enter text and see what a model does, and a JSON API "
        "(POST /predict), for models of every kind. Only this machine can connect, "
        "unless you set --host. Ctrl+C stops the server."
    )
    parser.add_argument(
        "--path",
        required=True,
        type=Path,
        help="checkpoint, its folder, or a file from casrnn pack",
    )
    parser.add_argument("--data", help="folder with the dictionaries (default: the training data)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8000,
        help="port to listen on, or 0 for any free one (default: 8000)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        help="maximum number of requests per batch (default: 32)",
    )
    parser.add_argument(
        "--max-characters",
        type=int,
        default=2000,
        help="maximum length of a text, in characters (default: 2000)",
    )
    parser.add_argument("--beam", type=int, default=5, help="beam size of translation (default: 5)")


def run(args: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        UserError: a package is not installed, an option is out of range, the model cannot be
            served, or the address is in use.
    """
    check_at_least(0, port=args.port)
    check_at_least(1, batch_size=args.batch_size, max_characters=args.max_characters)
    check_at_least(1, beam=args.beam)
    try:
        import uvicorn

        from fairseq_casrnn.serving.app import Settings, allowed_hosts, make_app
    except ImportError as error:
        if error.name not in ("uvicorn", "starlette", "prometheus_client"):
            raise
        raise UserError(
            f"casrnn serve needs {error.name}; install it with pip install 'fairseq-casrnn[serve]'"
        ) from None
    with open_listener(args.host, args.port) as listener:
        predictor = load(args)
        address, port = listener.getsockname()[:2]
        settings = Settings(
            name=shown_path(args.path),
            batch_size=args.batch_size,
            max_characters=args.max_characters,
            hosts=allowed_hosts(args.host, address),
        )
        config = uvicorn.Config(
            make_app(predictor, settings),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        netloc = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        show(
            [f"serving {settings.name}, a {predictor.kind}, at http://{netloc}/ (Ctrl+C stops it)"]
        )
        with ignore_reraised_signals(), without_logging():
            uvicorn.Server(config).run(sockets=[listener])
    show(["stopped"])


def shown_path(path: Path) -> str:
    """``path`` as it was given; if it has many parts, the last ones after ``…/``."""
    if path.name in ("", ".."):
        path = path.resolve()
    if len(path.parts) <= SHOWN_PARTS:
        return str(path)
    return "/".join(("…", *path.parts[-SHOWN_PARTS:]))


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket. Raises UserError if the address cannot be used."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen at {host}, port {port} ({reason}); give another --port or --host"
        ) from None
    # asyncio does this only for sockets that it creates; without it, responses take 40 ms more.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@contextlib.contextmanager
def ignore_reraised_signals():
    """Ignore SIGINT and SIGTERM outside of the server.

    uvicorn handles them itself, but raises them again after its shutdown.
    """
    previous = {
        number: signal.signal(number, lambda *ignored: None)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def without_logging():
    """Discard what fairseq logs for each request; :func:`.captured_log` would collect it."""
    root = logging.getLogger()
    handlers, root.handlers[:] = root.handlers[:], [logging.NullHandler()]
    try:
        yield
    finally:
        root.handlers[:] = handlers
