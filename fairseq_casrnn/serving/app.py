"""The web application: a page, ``POST /predict``, and what watches over them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.serving.answering import Answering
from fairseq_casrnn.serving.batching import Batcher
from fairseq_casrnn.serving.metrics import Metrics
from fairseq_casrnn.serving.questions import MAX_BODY, BadRequest, parse_question

SECONDS_FOR_BODY = 10
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
# What is read of a body that is too large, so that its sender reads why.
DISCARDED = 64 * MAX_BODY


@dataclass(frozen=True)
class Settings:
    """Of a server.

    Args:
        name: of the model, for people.
        batch_size: most questions that are answered together.
        max_characters: longest text.
        hosts: names by which the server may be called; empty for any. A page of another site whose
            name suddenly means this machine is none of them.
    """

    name: str = "model"
    batch_size: int = 32
    max_characters: int = 2000
    hosts: Sequence[str] = LOOPBACK


def make_app(answering: Answering, settings: Settings) -> Starlette:
    """The application for a model."""
    metrics = Metrics()
    batcher = Batcher(answering.answer, settings.batch_size, metrics.batch_size.observe)
    metrics.waiting.set_function(lambda: batcher.waiting)
    page, policy = read_page()
    description = describe(answering, settings)

    async def predict(request: Request) -> Response:
        check_content_type(request)
        body = await read_body(request)
        question = parse_question(body, answering.pairs, settings.max_characters)
        return JSONResponse({"kind": answering.kind, **await batcher.ask(question)})

    async def index(request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    async def model(request: Request) -> Response:
        return JSONResponse(description)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "model": settings.name})

    async def prometheus(request: Request) -> Response:
        return Response(metrics.text(), media_type=metrics.media_type)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette):
        async with batcher.running():
            yield

    routes = [
        Route("/", index),
        Route("/predict", predict, methods=["POST"]),
        Route("/model", model),
        Route("/health", health),
        Route("/metrics", prometheus),
    ]
    middleware = [Middleware(Watch, metrics=metrics, paths={route.path for route in routes})]
    if settings.hosts:
        hosts = list(settings.hosts)
        middleware.append(
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
        )
    return Starlette(
        routes=routes,
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={
            HTTPException: lambda request, error: failed(error.detail, error.status_code),
            UserError: lambda request, error: failed(str(error), getattr(error, "status", 422)),
            ClientDisconnect: lambda request, error: failed("the client has gone", 400),
            Exception: lambda request, error: failed("the server failed; its log says why", 500),
        },
    )


def failed(message: str, status: int) -> JSONResponse:
    """An answer that says what was wrong."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": message}, status, headers=headers)


def check_content_type(request: Request) -> None:
    """Raise BadRequest unless JSON is sent.

    Browsers let pages of other sites send forms and plain text, but not this.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadRequest("send JSON, with the header Content-Type: application/json", 415)


async def read_body(request: Request) -> bytes:
    """The body of a request. Raises BadRequest where it is too large or too slow."""
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(SECONDS_FOR_BODY):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= MAX_BODY:
                    body += chunk
                elif size > DISCARDED:
                    break
    except TimeoutError:
        message = f"the body did not arrive within {SECONDS_FOR_BODY} seconds; send it again"
        raise BadRequest(message, 408) from None
    if size > MAX_BODY:
        raise BadRequest(f"the body has more than {MAX_BODY} bytes; send less", 413)
    return bytes(body)


def describe(answering: Answering, settings: Settings) -> dict:
    """What ``GET /model`` says."""
    return {
        "name": settings.name,
        "kind": answering.kind,
        "pairs": answering.pairs,
        "architecture": type(answering.model).__name__,
        "parameters": sum(parameter.numel() for parameter in answering.model.parameters()),
        "max_characters": settings.max_characters,
        **answering.description(),
    }


def read_page() -> tuple[str, str]:
    """The page, and a policy by which a browser runs what is in it and nothing else."""
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    rules = ["default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'"]
    rules += ["form-action 'none'", "frame-ancestors 'none'"]
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        rules.append(f"{tag}-src 'sha256-{digest}'")
    return page, "; ".join(rules)


class Watch:
    """Middleware: counts and times requests, and adds headers that guard the page."""

    def __init__(self, app, metrics: Metrics, paths: set[str]):
        self.app, self.metrics, self.paths = app, metrics, paths

    async def __call__(self, scope, receive, send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        # Other paths are anything that a client makes up.
        path = scope["path"] if scope["path"] in self.paths else "other"
        start, status = time.perf_counter(), 500

        async def noted(message):
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"no-referrer"),
                    (b"cache-control", b"no-store"),
                ]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - start)
