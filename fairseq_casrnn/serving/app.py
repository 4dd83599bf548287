"""The web application: a page, ``POST /predict``, metrics and request limits."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import ipaddress
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
from fairseq_casrnn.serving.batching import Batcher
from fairseq_casrnn.serving.metrics import Metrics
from fairseq_casrnn.serving.predict_request import MAX_BODY, BadRequest, parse_request
from fairseq_casrnn.serving.predictors import Predictor

BODY_TIMEOUT = 10
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
# A body that is too large is read up to this size, so that the client receives the error.
MAX_DISCARDED = 64 * MAX_BODY


@dataclass(frozen=True)
class Settings:
    """Settings of a server.

    Args:
        name: of the model, for display.
        batch_size: largest number of requests in a batch.
        max_characters: longest text.
        hosts: host names that requests may have; empty for any. This prevents DNS rebinding by
            pages of other sites.
    """

    name: str = "model"
    batch_size: int = 32
    max_characters: int = 2000
    hosts: Sequence[str] = LOOPBACK


def allowed_hosts(host: str, address: str) -> Sequence[str]:
    """``hosts`` of a server that listens at an IP ``address``, given as ``--host host``.

    Any host name is allowed unless only this machine can reach the address.
    """
    return (*LOOPBACK, address, host) if ipaddress.ip_address(address).is_loopback else ()


def make_app(predictor: Predictor, settings: Settings) -> Starlette:
    """The application for a model."""
    metrics = Metrics()
    batcher = Batcher(predictor.predict, settings.batch_size, metrics.batch_size.observe)
    metrics.waiting.set_function(lambda: batcher.waiting)
    page, policy = read_page()
    description = describe(predictor, settings)

    async def predict(request: Request) -> Response:
        check_content_type(request)
        body = await read_body(request)
        parsed = parse_request(
            body, predictor.pairs, settings.max_characters, predictor.most_hypotheses
        )
        return JSONResponse({"kind": predictor.kind, **await batcher.submit(parsed)})

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
    paths = {route.path for route in routes}
    middleware = [Middleware(MetricsMiddleware, metrics=metrics, paths=paths)]
    if settings.hosts:
        hosts = list(settings.hosts)
        middleware.append(
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
        )
    return Starlette(
        routes=routes,
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers=exception_handlers(),
    )


def exception_handlers() -> dict:
    """The responses to errors, by type."""

    def http_error(request: Request, error: HTTPException) -> Response:
        return error_response(error.detail, error.status_code)

    def user_error(request: Request, error: UserError) -> Response:
        return error_response(str(error), getattr(error, "status", 422))

    def disconnected(request: Request, error: ClientDisconnect) -> Response:
        return error_response("the client disconnected", 400)

    def server_error(request: Request, error: Exception) -> Response:
        return error_response("the server failed; its log says why", 500)

    return {
        HTTPException: http_error,
        UserError: user_error,
        ClientDisconnect: disconnected,
        Exception: server_error,
    }


def error_response(message: str, status: int) -> JSONResponse:
    """A JSON response with an error message."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": message}, status, headers=headers)


def check_content_type(request: Request) -> None:
    """Raise BadRequest unless the content type is JSON.

    Browsers let pages of other sites send forms and plain text, but not JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadRequest("send JSON, with the header Content-Type: application/json", 415)


async def read_body(request: Request) -> bytes:
    """The body of a request. Raises BadRequest if it is too large or too slow."""
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= MAX_BODY:
                    body += chunk
                elif size > MAX_DISCARDED:
                    break
    except TimeoutError:
        message = f"the body did not arrive within {BODY_TIMEOUT} seconds; send it again"
        raise BadRequest(message, 408) from None
    if size > MAX_BODY:
        raise BadRequest(f"the body has more than {MAX_BODY} bytes; send less", 413)
    return bytes(body)


def describe(predictor: Predictor, settings: Settings) -> dict:
    """The response to ``GET /model``."""
    return {
        "name": settings.name,
        "kind": predictor.kind,
        "pairs": predictor.pairs,
        "architecture": type(predictor.model).__name__,
        "parameters": sum(parameter.numel() for parameter in predictor.model.parameters()),
        "max_characters": settings.max_characters,
        **predictor.description(),
    }


def read_page() -> tuple[str, str]:
    """The page, and a content security policy that allows only its own script and style."""
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    rules = ["default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'"]
    rules += ["form-action 'none'", "frame-ancestors 'none'"]
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        rules.append(f"{tag}-src 'sha256-{digest}'")
    return page, "; ".join(rules)


class MetricsMiddleware:
    """Counts and times requests, and adds security headers to responses."""

    def __init__(self, app, metrics: Metrics, paths: set[str]):
        self.app, self.metrics, self.paths = app, metrics, paths

    async def __call__(self, scope, receive, send) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        # One label for all unknown paths: clients must not create new metrics.
        path = scope["path"] if scope["path"] in self.paths else "other"
        start, status = time.perf_counter(), 500

        async def send_with_headers(message):
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
            await self.app(scope, receive, send_with_headers)
        finally:
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - start)
