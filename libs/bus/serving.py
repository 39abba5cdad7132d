"""Serving requests: a JSON body in, a reply model or a Problem out.

Only reply subjects under `_INBOX.` and `_R_.` are answered: a request whose reply subject is a command's would
otherwise make the service publish that command (PITFALLS 36b). Replies stay below 512 KiB.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from contracts import requests
from contracts.base import MAX_BODY_BYTES, MAX_REPLY_BYTES, Model, Open
from contracts.registry import Request
from contracts.requests import ProblemCode
from libs.bus import tracing
from libs.bus.codec import CONTENT_TYPE, JSON, explain, has_nul, valid_key
from libs.bus.errors import NotLeader, NotYet, Problem, Refused
from libs.bus.events import Call
from libs.bus.work import Desk
from libs.kit.logs import get_logger
from libs.telemetry import spans

C = TypeVar("C")

PROBLEM_HEADER = "farside-problem"
CALLER_HEADER = "farside-caller"
REPLY_SUBJECTS = ("_INBOX.", "_R_.")  # the second: where the server has rewritten the reply of another account
MAX_TEXT_CHARS = 4000


@dataclass(frozen=True)
class Served(Generic[C]):
    """One request and its handler."""

    request: Request[Any, Any]
    handler: Callable[[Any, Any], Awaitable[Model]]


class Counter(Generic[C]):
    """Answers requests, each in one transaction."""

    def __init__(self, desk: Desk[C], publish: Callable[[str, bytes, dict[str, str]], Awaitable[None]]) -> None:
        self._desk = desk
        self._publish = publish

    async def answer(self, served: Served[C], message: Msg, call: Callable[[Any, Any], Awaitable[Model]]) -> None:
        """Answer one request. `call` runs the handler."""
        headers = {name.lower(): value for name, value in (message.headers or {}).items()}
        if not message.reply.startswith(REPLY_SUBJECTS):
            get_logger().warning("bus.reply_refused", subject=message.subject, reply=message.reply)
            return
        try:
            body, problem = await self._reply(served, message, headers, call), None
        except Problem as error:
            body, problem = requests.Problem(code=error.code, message=error.message[:MAX_TEXT_CHARS]), error.code
        await self._send(message, served, body, problem)

    async def _reply(
        self,
        served: Served[C],
        message: Msg,
        headers: dict[str, str],
        call: Callable[[Any, Any], Awaitable[Model]],
    ) -> Model:
        request = self._read(served, message, headers)
        tracing.about(served.request.key, request.key, request.body)
        try:
            async with self._desk.slots, self._desk.ledger.transaction() as tx:
                return await call(tx, request)
        except Problem:
            raise
        except Refused as error:
            raise Problem(ProblemCode.INVALID, str(error)) from error
        except NotYet as error:
            raise Problem(ProblemCode.UNAVAILABLE, f"{error}: ask again") from error
        except NotLeader as error:
            raise Problem(ProblemCode.UNAVAILABLE, "leadership has just changed: ask again") from error
        except Exception as error:
            alive = await self._desk.health.alive()
            if not alive or self._desk.ledger.is_transient(error):
                raise Problem(ProblemCode.UNAVAILABLE, "the store does not answer: ask again") from error
            get_logger().error("bus.call_failed", request=served.request.id, error=repr(error), exc_info=error)
            spans.failed(error)
            text = f"{served.request.id} failed: {type(error).__name__}: {error}"
            raise Problem(ProblemCode.INTERNAL, text) from error

    def _read(self, served: Served[C], message: Msg, headers: dict[str, str]) -> Call[Any]:
        key = message.subject.rpartition(".")[2]
        if not valid_key(served.request.key, key) and key != "_":
            raise Problem(ProblemCode.INVALID, f"{key!r} is no {served.request.key}: it matches [a-z0-9-]{{1,63}}")
        if len(message.data) > MAX_BODY_BYTES:
            text = f"the request has {len(message.data)} bytes, the limit is {MAX_BODY_BYTES}"
            raise Problem(ProblemCode.INVALID, text)
        if has_nul(message.data.decode("utf-8", "replace")):
            raise Problem(ProblemCode.INVALID, "a string of the request holds the character NUL: leave it out")
        try:
            body = served.request.model.model_validate_json(message.data or b"{}", strict=True)
        except ValidationError as error:
            raise Problem(ProblemCode.INVALID, explain(error)) from None
        named = getattr(body, served.request.key.value, key)
        if named != key:
            raise Problem(ProblemCode.INVALID, f"the subject names {key!r} but the body names {named!r}")
        return Call(body, key, headers.get(CALLER_HEADER))

    async def _send(self, message: Msg, served: Served[C], body: Model, problem: Open[ProblemCode] | None) -> None:
        headers = {CONTENT_TYPE: JSON}
        data = body.model_dump_json().encode()
        if len(data) > MAX_REPLY_BYTES:
            problem = ProblemCode.INVALID
            text = (
                f"the answer to {served.request.id} has {len(data)} bytes, the limit is {MAX_REPLY_BYTES}: ask for less"
            )
            data = requests.Problem(code=problem, message=text).model_dump_json().encode()
        if problem is not None:
            headers[PROBLEM_HEADER] = str(problem)
        tracing.answered(served.request, tracing.ANSWERED if problem is None else str(problem))
        try:
            await self._publish(message.reply, data, headers)
        except NatsError as error:
            get_logger().warning("bus.reply_failed", request=served.request.id, error=repr(error))
