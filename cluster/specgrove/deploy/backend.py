"""IngressBackend: many target replicas behind one Backend. Both doors, HTTP and gRPC, stand on it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from specgrove.config import Config
from specgrove.core.cards import ReplicaCard
from specgrove.core.protocols import ModelStatus
from specgrove.core.request import GenerateEvent, GenerateRequest
from specgrove.deploy.fleet import Fleet
from specgrove.errors import CapacityError, ModelNotFound, ReplicaLost, SpecgroveError, Unavailable
from specgrove.rpc.clients import TargetClient

_T = TypeVar("_T")


class IngressBackend:
    """Implements core.protocols.Backend over the fleet of target replicas."""

    def __init__(self, config: Config, fleet: Fleet) -> None:
        self._fleet = fleet
        self._wait_s = config.ingress.wait_for_replica_s
        self._timeout_s = config.ingress.request_timeout_s
        self._names = tuple(dict.fromkeys(name for pool in config.targets.values() for name in pool.served_names))

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """Events of one request from the target with the shortest predicted wait.

        A target that refuses (draining, full) or cannot be reached before it has sent anything is passed over for the
        next. Raises ModelNotFound, Unavailable, CapacityError, ReplicaLost and what the target raises.
        """
        choice = _Choice(self._fleet, self._check(request.model), self._wait_s, request)
        limit_s = min(self._timeout_s, request.timeout_s or self._timeout_s)
        request = replace(request, timeout_s=limit_s)
        while True:
            card = await choice.next()
            received = 0
            with self._fleet.tracked(card.replica):
                try:
                    stream = self._fleet.client(card).generate(request)
                    async with aclosing(stream) as events:  # type: ignore[type-var]  # it is a generator
                        async for event in events:
                            received += 1
                            yield event
                    return
                except (Unavailable, CapacityError, ReplicaLost) as error:
                    if received:
                        raise
                    choice.failed(card, error)

    @property
    def ready(self) -> bool:
        """Every model has a replica that takes new work."""
        return all(self._fleet.pick(name) is not None for name in self._names)

    async def models(self) -> Sequence[ModelStatus]:
        """All models of the configuration, served at the moment or not."""
        live = {one.card.replica: one for one in self._fleet.replicas}
        found = []
        for name in self._names:
            mine = [one for one in live.values() if one.card.role == "target" and name in one.card.served_names]
            drafts = sorted({draft for one in mine for draft in one.load.drafts if draft in live})
            found.append(
                ModelStatus(
                    name=name,
                    replicas=tuple(one.card for one in mine),
                    loads=tuple(one.load for one in mine),
                    drafts=tuple(live[draft].card for draft in drafts),
                    state="ready" if any(not one.load.draining for one in mine) else "unavailable",
                    created=min((self._fleet.since(one) for one in mine), default=0),
                )
            )
        return found

    async def tokenize(self, model: str, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Token ids of a text."""

        async def ask(client: TargetClient) -> tuple[int, ...]:
            return await client.tokenize(model, text, add_special_tokens=add_special_tokens)

        return await self._ask(model, ask)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        """Text of token ids."""

        async def ask(client: TargetClient) -> str:
            return await client.detokenize(model, tokens)

        return await self._ask(model, ask)

    async def _ask(self, model: str, ask: Callable[[TargetClient], Awaitable[_T]]) -> _T:
        choice = _Choice(self._fleet, self._check(model), self._wait_s)
        while True:
            card = await choice.next()
            try:
                return await ask(self._fleet.client(card))
            except (Unavailable, ReplicaLost) as error:
                choice.failed(card, error)

    def _check(self, model: str) -> str:
        if model not in self._names:
            raise ModelNotFound(f"model {model!r} is not served; served: {', '.join(self._names)}", param="model")
        return model


class _Choice:
    """Which targets one request has tried, and how long it may still wait for another one."""

    def __init__(self, fleet: Fleet, model: str, wait_s: float, request: GenerateRequest | None = None) -> None:
        self._fleet = fleet
        self._request = request
        self._model = model
        self._until = time.monotonic() + wait_s
        self._refused: set[str] = set()
        self._error: SpecgroveError | None = None

    async def next(self) -> ReplicaCard:
        """The next target to try; waits for one to come when there is none."""
        while True:
            card = self._fleet.pick(self._model, request=self._request, exclude=self._refused)
            if card is not None:
                return card
            left = self._until - time.monotonic()
            if isinstance(self._error, CapacityError):
                raise self._error
            if left <= 0:
                raise self._error or Unavailable(f"no replica of {self._model} is alive; try again later")
            self._refused.clear()
            await self._fleet.news(left)

    def failed(self, card: ReplicaCard, error: SpecgroveError) -> None:
        """This target could not take the request."""
        self._refused.add(card.replica)
        self._error = error
        if not isinstance(error, CapacityError):
            self._fleet.suspect(card.replica)
