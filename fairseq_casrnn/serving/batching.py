"""Batch concurrent requests: those that wait when the model becomes free form the next batch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from fairseq_casrnn.serving.predict_request import BadRequest, PredictRequest

MAX_WAITING = 1000


class _Pending(NamedTuple):
    request: PredictRequest
    result: asyncio.Future


class Batcher:
    """Runs a model on batches of requests, in one thread.

    Requests never wait for others to arrive: a batch consists of those that arrived while the model
    computed the previous batch.

    Args:
        predict: returns the results of a list of requests, in their order; runs in its own thread.
        max_batch_size: largest number of requests in a batch.
        observe: called with the size of each batch.
    """

    def __init__(
        self,
        predict: Callable[[Sequence[PredictRequest]], list[dict]],
        max_batch_size: int,
        observe: Callable[[int], None] = lambda size: None,
    ):
        self.predict, self.max_batch_size, self.observe = predict, max_batch_size, observe
        self._queue: asyncio.Queue[_Pending] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    @property
    def waiting(self) -> int:
        """Number of requests that are not in a batch yet."""
        return self._queue.qsize()

    async def submit(self, request: PredictRequest) -> dict:
        """The model's result for a request.

        Raises:
            BadRequest: too many requests wait already.
            UserError: the model refuses this request.
        """
        if self.waiting >= MAX_WAITING:
            raise BadRequest(f"{MAX_WAITING} requests wait already; try again later", 503)
        result = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Pending(request, result))
        return await result

    @contextlib.asynccontextmanager
    async def running(self):
        """Context manager that processes requests while it is active."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self._thread.shutdown()

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < self.max_batch_size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            batch = [pending for pending in batch if not pending.result.done()]  # disconnected
            if batch:
                self.observe(len(batch))
                await self._process(batch)

    async def _process(self, batch: list[_Pending]) -> None:
        """Run a batch. If it fails, run its requests one by one, so that only the bad ones fail."""
        loop = asyncio.get_running_loop()
        try:
            requests = [pending.request for pending in batch]
            results = await loop.run_in_executor(self._thread, self.predict, requests)
        except Exception as error:
            if len(batch) > 1:
                for pending in batch:
                    await self._process([pending])
            elif not batch[0].result.done():
                batch[0].result.set_exception(error)
            return
        for pending, result in zip(batch, results, strict=True):
            if not pending.result.done():
                pending.result.set_result(result)
