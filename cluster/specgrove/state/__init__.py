"""Shared state of a cluster: one contract, and its backends."""

from specgrove.state.memory import MemoryStore
from specgrove.state.store import Announcement, Snapshot, StateStore

__all__ = ["Announcement", "MemoryStore", "Snapshot", "StateStore"]
