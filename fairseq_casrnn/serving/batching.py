"""Concurrent requests, answered together: whatever waits when the model is free is one batch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from fairseq_casrnn.serving.questions import BadRequest, Question

MOST_WAITING = 1000


class _Waiting(NamedTuple):
    question: Question
    answer: asyncio.Future


class Batcher:
    """Puts questions to a model in one thread, several at a time.

    No request waits for others to come: a batch is what came while the model computed the last one.

    Args:
        answer: gives the answers to questions, in their order; runs in a thread of its own.
        size: most questions in a batch.
        observe: is told the size of each batch.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Question]], list[dict]],
        size: int,
        observe: Callable[[int], None] = lambda size: None,
    ):
        self.answer, self.size, self.observe = answer, size, observe
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    @property
    def waiting(self) -> int:
        """Questions that are not yet put to the model."""
        return self._queue.qsize()

    async def ask(self, question: Question) -> dict:
        """The answer to a question.

        Raises:
            BadRequest: too many questions wait already.
            UserError: what the model says of this question.
        """
        if self.waiting >= MOST_WAITING:
            raise BadRequest(f"{MOST_WAITING} requests wait already; try again later", 503)
        answer = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Waiting(question, answer))
        return await answer

    @contextlib.asynccontextmanager
    async def running(self):
        """While active, questions are answered."""
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
            while len(batch) < self.size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            batch = [one for one in batch if not one.answer.done()]  # the client has gone
            if batch:
                self.observe(len(batch))
                await self._answer(batch)

    async def _answer(self, batch: list[_Waiting]) -> None:
        """Answer a batch; if that fails each question by itself, so that only its own fails."""
        loop = asyncio.get_running_loop()
        try:
            questions = [one.question for one in batch]
            answers = await loop.run_in_executor(self._thread, self.answer, questions)
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    await self._answer([one])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        for one, answer in zip(batch, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(answer)
