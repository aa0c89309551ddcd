"""The app over the scripted backend: in process, and on a loopback port for real clients."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from tests.http.fake_backend import FakeBackend

from specgrove.http import create_app


@pytest.fixture(scope="session")
def _door() -> tuple[FakeBackend, FastAPI]:
    backend = FakeBackend()
    return backend, create_app(backend)


@pytest.fixture
def backend(_door: tuple[FakeBackend, FastAPI]) -> FakeBackend:
    """The scripted backend behind `client`; it has forgotten earlier tests."""
    _door[0].reset()
    return _door[0]


@pytest.fixture
async def client(_door: tuple[FakeBackend, FastAPI], backend: FakeBackend) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the app, without a socket between."""
    transport = httpx2.ASGITransport(app=_door[1], raise_app_exceptions=True)
    async with httpx2.AsyncClient(transport=transport, base_url="http://door") as one:
        yield one


@dataclass(frozen=True)
class Served:
    """A server on a loopback port."""

    backend: FakeBackend
    port: int

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def _server() -> Iterator[Served]:
    backend = FakeBackend()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(backend), log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    yield Served(backend, listener.getsockname()[1])
    server.should_exit = True
    thread.join(10)
    listener.close()
    assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def served(_server: Served) -> Iterator[Served]:
    """The server with a backend that has forgotten earlier tests."""
    _server.backend.reset()
    yield _server
    _server.backend.reset()
