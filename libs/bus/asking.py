"""Asking a service: a request that gets its answer whatever happens on the way, or says why not.

Calls are safe to repeat, so a request without an answer is sent again while the earlier ones may still be answered: a
link that was cut takes requests and replies with it without a word.
"""

import asyncio
from typing import Any, TypeVar

from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from pydantic import ValidationError

from contracts import requests
from contracts.base import Model
from contracts.registry import Request
from contracts.requests import ProblemCode
from libs.bus import tracing
from libs.bus.codec import CONTENT_TYPE, JSON
from libs.bus.connection import Connection
from libs.bus.errors import Problem
from libs.bus.serving import CALLER_HEADER, PROBLEM_HEADER
from libs.kit.retry import delays
from libs.telemetry import context, spans

M = TypeVar("M", bound=Model)
R = TypeVar("R", bound=Model)

RETRY_FIRST_S = 0.05
RETRY_CAP_S = 0.5
MAX_ASKS = 4
MIN_PATIENCE_S = 1.0


class Asker:
    """Sends requests over one connection. `name` is what the asker says it is."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._waiting: set[asyncio.Task[Any]] = set()

    def reconnected(self) -> None:
        """Answers to what was asked before will not come any more: ask again now."""
        for waiting in self._waiting:
            waiting.cancel()

    async def request(self, request: Request[M, R], body: M, key: str, timeout_s: float) -> R:
        """The reply to `request`. Raises Problem, with code `unavailable` when there was none within `timeout_s`.

        Asks again when nobody answers, when the service says `unavailable`, and, beside the earlier ones, after a
        quarter of the time without a reply.
        """
        with tracing.asking(request, key, body):
            return await self._until(request, body, key, timeout_s)

    async def _until(self, request: Request[M, R], body: M, key: str, timeout_s: float) -> R:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        patience_s = max(MIN_PATIENCE_S, timeout_s / MAX_ASKS)
        reason = "no reply in time"
        asks: set[asyncio.Task[R]] = set()
        try:
            for delay_s in delays(RETRY_FIRST_S, RETRY_CAP_S):
                left_s = deadline - loop.time()
                if left_s <= 0:
                    break
                if len(asks) < MAX_ASKS:
                    asks.add(self._start(request, body, key, left_s))
                done, asks = await asyncio.wait(
                    asks, timeout=min(patience_s, left_s), return_when=asyncio.FIRST_COMPLETED
                )
                for ask in done:
                    failure = _failure(ask)
                    if failure is None:
                        return ask.result()
                    reason = failure
                if done:
                    await asyncio.sleep(min(delay_s, max(0.0, deadline - loop.time())))
        finally:
            for ask in asks:
                ask.cancel()
        text = f"{request.id} for {key}: {reason} ({timeout_s} s)"
        raise Problem(ProblemCode.UNAVAILABLE, text)

    def _start(self, request: Request[M, R], body: M, key: str, timeout_s: float) -> asyncio.Task[R]:
        spans.event("ask")
        ask = asyncio.create_task(self._ask(request, body, key, timeout_s))
        self._waiting.add(ask)
        ask.add_done_callback(self._waiting.discard)
        return ask

    async def _ask(self, request: Request[M, R], body: M, key: str, timeout_s: float) -> R:
        trace = context.current()
        headers = {CONTENT_TYPE: JSON, CALLER_HEADER: self._name, **({} if trace is None else trace.headers())}
        data = body.model_dump_json().encode()
        answer = await self._connection.request(request.subject(key), data, timeout=timeout_s, headers=headers)
        try:
            if (answer.headers or {}).get(PROBLEM_HEADER):
                problem = requests.Problem.model_validate_json(answer.data)
                raise Problem(problem.code, problem.message)
            return request.reply.model_validate_json(answer.data)
        except ValidationError as error:
            text = f"the reply to {request.id} does not fit its schema: {error}"
            raise Problem(ProblemCode.INTERNAL, text) from error


def _failure(ask: asyncio.Task[Any]) -> str | None:
    """Why an ask that has ended must be repeated; None when it has a reply. Raises what repeating cannot help."""
    if ask.cancelled():
        return "the connection was lost while waiting for the reply"
    match ask.exception():
        case None:
            return None
        case NoRespondersError():
            return "nobody serves it at the moment"
        case Problem() as problem if problem.code is ProblemCode.UNAVAILABLE:
            return problem.message
        case NatsError() | TimeoutError() as error:
            return repr(error)
        case error:
            raise error
