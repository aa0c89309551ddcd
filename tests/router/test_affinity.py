"""Which replica is expected to hold a prompt's beginning."""

import pytest

from specgrove.core.request import ChatMessage, GenerateRequest
from specgrove.router.affinity import TEXT_BLOCK, TOKEN_BLOCK, PrefixMemory, prompt_tokens

SYSTEM = "You answer in one sentence. " * 40


def text(prompt, model="m"):
    """A request for a text."""
    return GenerateRequest(request_id="r", model=model, text=prompt)


def chat(*contents):
    """A conversation that begins with the system prompt."""
    turns = (ChatMessage("system", SYSTEM), *(ChatMessage("user", content) for content in contents))
    return GenerateRequest(request_id="r", model="m", messages=turns)


def ids(*tokens):
    """A request for token ids."""
    return GenerateRequest(request_id="r", model="m", tokens=tokens)


def test_a_common_beginning_is_found():
    """As far as whole blocks go, and only from the start."""
    memory = PrefixMemory()
    memory.remember(chat("What is 7 + 5?"), "a")

    held = memory.held(chat("Something else entirely, and a little longer than before" * 4))
    assert held.keys() == {"a"}
    assert 0.7 < held["a"] < 1
    assert memory.held(text("Another prompt. " * 40)) == {}
    assert memory.held(text("x" + SYSTEM)) == {}


def test_prompts_of_token_ids():
    """Blocks of ids."""
    memory = PrefixMemory()
    memory.remember(ids(*range(TOKEN_BLOCK * 4)), "a")

    assert memory.held(ids(*range(TOKEN_BLOCK * 2), *([7] * TOKEN_BLOCK * 2))) == {"a": 0.5}
    assert memory.held(ids(*range(TOKEN_BLOCK - 1))) == {}


def test_the_latest_replica_counts():
    """A conversation that moved is looked for where it is now; what only the former one has still counts there."""
    memory = PrefixMemory()
    memory.remember(text("a" * TEXT_BLOCK * 4), "first")
    memory.remember(text("a" * TEXT_BLOCK * 2), "second")

    assert memory.held(text("a" * TEXT_BLOCK * 4)) == {"second": 0.5, "first": 1.0}


def test_models_are_kept_apart():
    """The same text for another model is another prefix."""
    memory = PrefixMemory()
    memory.remember(text(SYSTEM), "a")

    assert memory.held(text(SYSTEM, model="other")) == {}


def test_memory_is_bounded():
    """The least recently used blocks go; looking one up counts as use."""
    memory = PrefixMemory(most_blocks=4)
    memory.remember(text("a" * TEXT_BLOCK * 2), "a")
    memory.remember(text("b" * TEXT_BLOCK * 2), "b")
    assert memory.held(text("a" * TEXT_BLOCK * 2)) == {"a": 1.0}
    memory.remember(text("c" * TEXT_BLOCK * 2), "c")

    assert memory.held(text("a" * TEXT_BLOCK * 2)) == {"a": 1.0}
    assert memory.held(text("b" * TEXT_BLOCK * 2)) == {}


@pytest.mark.parametrize(
    ("request_", "least", "most"), [(ids(1, 2, 3), 3, 3), (text("x" * 400), 90, 110), (text(""), 1, 1)]
)
def test_lengths_are_estimated(request_, least, most):
    """Texts by their characters."""
    assert least <= prompt_tokens(request_) <= most
