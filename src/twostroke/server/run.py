"""From a loaded model to a server that runs: listening, signals, draining. Owns the order of starting and ending."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from twostroke.errors import ConfigError, EngineStoppedError
from twostroke.llm.llm import LLM
from twostroke.llm.serving import Serving
from twostroke.program.phase import Phase
from twostroke.roofline.hardware import HardwareSpec
from twostroke.server.activity import Activity
from twostroke.server.app import build_app
from twostroke.server.auth import Keys
from twostroke.server.config import ServerConfig
from twostroke.server.connection import connection_class
from twostroke.server.dialect import Dialect
from twostroke.server.lifecycle import Lifecycle
from twostroke.server.limits import Admission
from twostroke.server.metrics import Metrics
from twostroke.server.roof_watch import RoofWatch
from twostroke.server.service import Service
from twostroke.server.workers import Workers

_SWITCH_S = 0.0005  # the engine's thread waits no longer than this for the interpreter, between two steps
_BACKLOG = 1024
_SEND_BUFFER = 128 * 1024  # what the system keeps for a reader that is slow
_LAST_WORDS_S = 2  # for the end of streams that were cut
_log = logging.getLogger("twostroke.server")


def make_service(
    llm: LLM, config: ServerConfig, names: tuple[str, ...], measure: Callable[[], HardwareSpec] | None = None
) -> Service:
    """What an application needs, in a running event loop. The engine's thread runs until `serving.stop`.

    `measure` gives the roofs, now and whenever an answer comes out above them.
    """
    engine = llm.running.engine
    roofs = RoofWatch(measure() if measure else None, measure, lambda: not engine.has_work)
    dialect = Dialect(llm)
    dialect.prepare()
    return Service(
        serving=Serving(llm, asyncio.get_running_loop()),
        dialect=dialect,
        config=config,
        names=names,
        lifecycle=Lifecycle(),
        admission=Admission(
            config.max_queued, config.max_queued_tokens, lambda: engine.ledger.summary(Phase.PREFILL).tok_s
        ),
        workers=Workers(config.prepare_timeout),
        metrics=Metrics(engine, names[0], roofs),
        activity=Activity(engine, roofs),
        roofs=roofs,
    )


def bind(config: ServerConfig) -> socket.socket:
    """A socket that has its address and does not listen yet. Raises ConfigError where it cannot be had."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)  # connections have the same
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # of a connection that is to be closed, its reader gone
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(config.stall_timeout * 1000))
        found.bind((config.host, config.port))
    except OSError as error:
        found.close()
        raise ConfigError(f"cannot listen on {config.host}:{config.port}: {error.strerror or error}") from None
    return found


async def serve(
    make: Callable[[], Service], keys: Keys, config: ServerConfig, bound: socket.socket, started: Callable[[], None]
) -> None:
    """Serves what `make` makes until a signal has it end; `started` is called once it listens.

    Raises EngineStoppedError where a fault ended the engine: every request has then been told.
    """
    sys.setswitchinterval(_SWITCH_S)
    service = make()
    try:
        server = Server(service, keys, config)
        bound.listen(_BACKLOG)
        started()
        await server.serve(sockets=[bound])
        if service.serving.death.done():
            raise EngineStoppedError(
                "the engine has stopped by a fault, told above"
            ) from service.serving.death.result()
    finally:
        service.roofs.close()
        service.workers.close()
        service.serving.stop()


def address_of(bound: socket.socket) -> str:
    """Its URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's, with another answer to signals: the first drains, the second ends. The engine's end is its own."""

    def __init__(self, service: Service, keys: Keys, config: ServerConfig) -> None:
        super().__init__(
            uvicorn.Config(
                build_app(service, keys),
                http=connection_class(config.prepare_timeout),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_LAST_WORDS_S,
                h11_max_incomplete_event_size=65536,
            )
        )
        self._service = service
        self._drain_seconds = config.drain
        self._loop = asyncio.get_running_loop()
        self._draining: asyncio.Task[None] | None = None
        service.serving.death.add_done_callback(self._engine_died)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """In the main thread, between two bytecodes: the loop does the rest."""
        self._loop.call_soon_threadsafe(self._end, signal.Signals(sig).name)

    def _end(self, name: str) -> None:
        if self._draining is None:
            _log.info("%s: draining, %g s at most", name, self._drain_seconds)
            self._draining = self._loop.create_task(self._drain())
        else:
            _log.info("%s again: ending", name)
            self._service.lifecycle.end_all()
            self.should_exit = True

    def _engine_died(self, death: asyncio.Future[BaseException]) -> None:
        """Nothing tells in what state the engine is: all fail, and the process ends for a supervisor to begin anew."""
        error = death.result()
        _log.critical("the engine has stopped: %s: %s", type(error).__name__, error, exc_info=error)
        self._service.lifecycle.end_all(EngineStoppedError("the engine has stopped by a fault"))
        self.should_exit = True

    async def _drain(self) -> None:
        whole = await self._service.lifecycle.drain(self._drain_seconds)
        _log.info("every request was answered" if whole else "time is up: what still ran was cut")
        self.should_exit = True
