"""Typed clients of GenerationService.

with Client("localhost:9000") as client:
    for event in client.generate("grove-large", "Once upon a time", max_tokens=32):
        if isinstance(event, Chunk):
            print(event.text, end="")
"""

from specgrove.client.aio import AsyncClient
from specgrove.client.ask import Prompt, build_request
from specgrove.client.completion import Choice, Completion
from specgrove.client.sync import Client, Stream
from specgrove.core.protocols import ModelStatus
from specgrove.core.request import (
    ChatMessage,
    ChoiceFinished,
    Chunk,
    Finished,
    GenerateEvent,
    GenerateRequest,
    Speculation,
    Started,
    TokenLogprob,
)
from specgrove.core.sampling import SamplingFields
from specgrove.errors import SpecgroveError

__all__ = [
    "AsyncClient",
    "ChatMessage",
    "Choice",
    "ChoiceFinished",
    "Chunk",
    "Client",
    "Completion",
    "Finished",
    "GenerateEvent",
    "GenerateRequest",
    "ModelStatus",
    "Prompt",
    "SamplingFields",
    "SpecgroveError",
    "Speculation",
    "Started",
    "Stream",
    "TokenLogprob",
    "build_request",
]
