"""One tokenizer for all tests of this folder."""

import pytest

from specgrove.training.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    """A freshly trained tokenizer; it takes seconds, so all tests share it."""
    return train_tokenizer(0)
