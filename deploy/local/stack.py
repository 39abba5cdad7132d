"""The local stack as a library: `async with Stack(directory) as stack:` and everything is up.

Starts the parts as soon as what they need is up, keeps them alive, and takes everything down again, in whatever way it
ends: an error, a cancellation, the death of this process. Use it from the main thread: on Linux a part ends with the
thread that started it.
"""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from contracts.registry import SERVICES
from deploy.local import apps, control, leftovers, nats_servers
from deploy.local.apps import Overrides
from deploy.local.bus import Bus
from deploy.local.config import Config, prepare_config, stack_dir, write_stack_file
from deploy.local.errors import PartFailedError, StackError
from deploy.local.fleet import NODES, TENANTS_DIR, Node, names, tenants_of
from deploy.local.identity import Identity, identity
from deploy.local.keeper import Hooks, Keeper
from deploy.local.lock import lock
from deploy.local.part import Part, PartState, PartStatus, Phase, Step
from deploy.local.postgres import postgres
from deploy.local.provision import provision
from deploy.local.seaweed import seaweed
from deploy.local.watch import Watch
from libs.bus.accounts import OPERATOR, node_user, tenant_user


def _silent(_line: str) -> None:
    """Say nothing."""


class Stack:
    """One stack in one folder.

    `parts` limits it to some parts (`fleet.names` lists them), `env` and `part_env` add variables to all of Farside's
    processes or to single ones, `ports` fixes ports by name, `leaf_remote_port` puts a proxy between leaf and hub,
    `say` gets a line for each thing that happens.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        parts: Iterable[str] | None = None,
        nodes: tuple[Node, ...] = NODES,
        env: Mapping[str, str] | None = None,
        part_env: Mapping[str, Mapping[str, str]] | None = None,
        ports: Mapping[str, int] | None = None,
        tenants: Path = TENANTS_DIR,
        leaf_remote_port: int | None = None,
        say: Callable[[str], None] = _silent,
    ) -> None:
        self.directory = stack_dir(directory)
        self.parts = _selected(parts, names(nodes))
        self.nodes = tuple(node for node in nodes if node.name in self.parts)
        self._fleet = nodes
        self.stop_asked = asyncio.Event()
        self._overrides = Overrides(env or {}, part_env or {}, tenants.resolve())
        self._tenants = tenants_of(tenants)
        self._ports = ports or {}
        self._leaf_remote_port = leaf_remote_port
        self._say = say
        self._keepers: dict[str, Keeper] = {}
        self._steps: dict[str, PartState] = {}
        self._ready: dict[str, asyncio.Event] = {}
        self._holding = contextlib.AsyncExitStack()
        self._config: Config | None = None
        self._in_order = False
        self._started = False

    @property
    def config(self) -> Config:
        """Addresses and secrets; there once the stack has begun to start."""
        assert self._config is not None, "the stack was never started"
        return self._config

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Bring everything up. On any failure everything is down again when StackError is raised."""
        try:
            await self._open()
            await self._bring_up()
            self._started = True
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Take everything down, agents first; the data stays. Safe to call twice."""
        await self._holding.aclose()

    def kill(self) -> None:
        """SIGKILL to every part, now; the reaper does the rest when this process ends."""
        for keeper in self._keepers.values():
            keeper.kill()

    def hold(self, part: str) -> None:
        """Do not start `part` again when it ends."""
        self._keeper(part).hold()

    def release(self, part: str) -> None:
        """Start `part` again when it ends, and now if it is down."""
        self._keeper(part).release()

    async def stop_part(self, part: str) -> None:
        """End `part` and keep it down until it is released."""
        keeper = self._keeper(part)
        keeper.hold()
        await keeper.stop_process()

    def pid(self, part: str) -> int:
        """Pid of a running part; StackError when it does not run."""
        pid = self._keeper(part).pid
        if pid is None:
            msg = f"{part} does not run: it is {self._keeper(part).state}"
            raise StackError(msg)
        return pid

    def status(self) -> list[PartStatus]:
        """Every part and step in the order of the table."""
        return [self._status(name) for name in self.parts]

    def _status(self, name: str) -> PartStatus:
        if name in self._keepers:
            return self._keepers[name].status()
        state = self._steps.get(name, PartState.WAITING)
        return PartStatus(name, state, None, 0, None, apps.VERSION, "")

    def _keeper(self, part: str) -> Keeper:
        if part not in self._keepers:
            msg = f"no part is named {part!r}: the parts are {', '.join(self._keepers)}"
            raise StackError(msg)
        return self._keepers[part]

    async def _open(self) -> None:
        """Take hold of the folder, in an order whose reverse is the way down."""
        holding = self._holding
        self._keepers, self._steps, self._in_order, self._started = {}, {}, False, False
        held = await holding.enter_async_context(lock(self.directory))
        self._config = config = prepare_config(self.directory, self._ports, self._users())
        holding.callback(shutil.rmtree, config.run_dir, ignore_errors=True)
        self._write(identity(os.getpid()))
        holding.callback(self._write, None)
        watch = Watch(self.directory, config.run_dir, config.log("reaper"), held)
        holding.callback(lambda: watch.close(in_order=self._in_order))
        bus = Bus(config.nats_url, "stack")
        hooks = Hooks(self._tell, watch.born, watch.gone)
        for part in self._build(config, bus):
            self._keepers[part.name] = Keeper(part, config.log(part.name), hooks)
        holding.push_async_callback(self._take_down)
        holding.push_async_callback(bus.close)
        server = await control.serve(config.control_socket, self._answer)
        holding.callback(server.close)

    def _write(self, supervisor: Identity | None) -> None:
        nodes = [node.name for node in self.nodes]
        write_stack_file(self.config, parts=list(self.parts), nodes=nodes, tenants=self._tenants, supervisor=supervisor)

    def _users(self) -> list[str]:
        """Everybody who has a password on the bus."""
        nodes = [node_user(node.name) for node in self._fleet]
        return [OPERATOR, *SERVICES, *nodes, *map(tenant_user, self._tenants)]

    def _build(self, config: Config, bus: Bus) -> list[Part]:
        makers: dict[str, Callable[[], Part]] = {
            "postgres": lambda: postgres(config),
            "nats": lambda: nats_servers.hub(config, self._fleet, self._tenants),
            "leaf": lambda: nats_servers.leaf(config, self._fleet, self._leaf_remote_port),
            "seaweed": lambda: seaweed(config),
        }
        found = [make() for name, make in makers.items() if name in self.parts]
        found += [apps.service(config, name, bus, self._overrides) for name in SERVICES if name in self.parts]
        return found + [apps.agent(config, node, bus, self._overrides) for node in self.nodes]

    async def _bring_up(self) -> None:
        nodes = [node.name for node in self.nodes]
        names = frozenset(self.parts)
        step = Step("provision", ("postgres", "nats"), lambda: provision(self.config, names, nodes, self._tenants))
        self._ready = {name: asyncio.Event() for name in self.parts}
        try:
            async with asyncio.TaskGroup() as group:
                for keeper in self._keepers.values():
                    group.create_task(self._start_part(keeper))
                if step.name in self.parts:
                    group.create_task(self._run_step(step))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _start_part(self, keeper: Keeper) -> None:
        part = keeper.part
        await self._wait_for(part.after)
        begun = time.monotonic()
        await keeper.start()
        self._tell(part.name, "up", f"{time.monotonic() - begun:4.1f} s  {part.detail}")
        self._ready[part.name].set()

    async def _run_step(self, step: Step) -> None:
        await self._wait_for(step.after)
        begun = time.monotonic()
        self._steps[step.name] = PartState.STARTING
        try:
            done = await asyncio.wait_for(step.run(), step.limit_s)
        except TimeoutError:
            raise PartFailedError(step.name, f"not done after {step.limit_s:g} s") from None
        except Exception as error:
            raise PartFailedError(step.name, f"{type(error).__name__}: {error}") from error
        self._steps[step.name] = PartState.UP
        self._tell(step.name, "done", f"{time.monotonic() - begun:4.1f} s  {done}")
        self._ready[step.name].set()

    async def _wait_for(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._ready:
                await self._ready[name].wait()

    async def _take_down(self) -> None:
        try:
            await self._end_parts()
        except BaseException:  # hurried: the reaper ends what these kills do not reach
            self.kill()
            raise
        self._in_order = True

    async def _end_parts(self) -> None:
        for phase in sorted(Phase, reverse=True):
            stops = [keeper.stop() for keeper in self._keepers.values() if keeper.part.phase is phase]
            results = await asyncio.gather(*stops, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    self._tell("stack", "error", f"while stopping: {result!r}")
            if phase is Phase.AGENT and self.nodes:
                ended = await asyncio.to_thread(leftovers.end, self.directory)
                if ended:
                    self._tell("attempts", "ended", f"{ended} processes of running jobs")

    def _tell(self, name: str, word: str, rest: str) -> None:
        self._say(f"{name:<12}{word:<6}{rest}")

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        part = str(request.get("part", ""))
        match request.get("do"):
            case "status":
                parts = [asdict(status) for status in self.status()]
                return {"supervisor": os.getpid(), "started": self._started, "parts": parts}
            case "stop":
                self.stop_asked.set()
            case "hold":
                self.hold(part)
            case "release":
                self.release(part)
            case "stop_part":
                await self.stop_part(part)
            case other:
                msg = f"the supervisor cannot do {other!r}"
                raise StackError(msg)
        return {}


def _selected(parts: Iterable[str] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    if parts is None:
        return names
    wanted = set(parts)
    unknown = sorted(wanted - set(names))
    if unknown:
        msg = f"no part is named {unknown[0]!r}: the parts are {', '.join(names)}"
        raise StackError(msg)
    return tuple(name for name in names if name in wanted)
