"""Processes for tests.

`python -m tests.rpc.peers draft ADDRESS` answers each commit with a tree of 16 nodes;
`python -m tests.rpc.peers target` prints its address and waits for drafts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence

from tests.rpc.fakes import TOKEN, FakeHub, card

from specgrove.core.cards import ReplicaCard
from specgrove.core.speculate import Committed, DraftMessage, DraftTree, Update
from specgrove.core.tree import TokenTree
from specgrove.rpc.clients import speculate
from specgrove.rpc.servers import SpeculateServer

TREE = TokenTree(tuple(range(1000, 1016)), (-1, -1, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))


class Echo:
    """A draft that needs no time."""

    def connected(self, target: ReplicaCard, send: Callable[[Sequence[DraftMessage]], None]) -> None:
        self.send = send

    def received(self, target: str, updates: Sequence[Update]) -> None:
        self.send(
            [
                DraftTree(
                    session=update.session,
                    epoch=update.epoch,
                    base_length=update.length,
                    prefix_hash=update.prefix_hash,
                    plan_version=0,
                    tree=TREE,
                )
                for update in updates
                if isinstance(update, Committed)
            ]
        )

    def lost(self, target: str) -> None:
        """Nothing to forget."""


async def target() -> None:
    """A target that never has anything to say."""
    server = SpeculateServer(FakeHub(), card("t0", "target"))
    sys.stdout.write(await server.start() + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "target":
        asyncio.run(target())
    else:
        asyncio.run(speculate(sys.argv[2], card("d0", "draft"), TOKEN, Echo()))
