"""The embedded backend against the contract."""

from __future__ import annotations

import pytest
from tests.state.contract import StoreContract

from specgrove.state import MemoryStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        """A fresh store."""
        return MemoryStore()
