"""Another server beside ours: any OpenAI endpoint, asked over HTTP as its users ask it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from specgrove.bench.measure import Variant
from specgrove.core.request import RoundTrace, SpeculationStats
from specgrove.errors import ConfigError, Unavailable

PEER = "peer"
TIMEOUT_S = 600.0


def of_peer(url: str, prompts: Sequence[str], *, temperature: float) -> Variant:
    """A way to `count` tokens for prompt number `seed`. url: up to and with `/v1`; its first model is asked.

    Where the peer ends an answer early, fewer tokens are counted; what tokens they are is not looked at.
    Raises Unavailable when it does not answer, ConfigError when it is no OpenAI endpoint.
    """
    base = url.rstrip("/")
    models = _call(f"{base}/models", None).get("data") or []
    if not models:
        raise ConfigError(f"{url} lists no models", param="--peer")
    model = models[0]["id"]

    def run(
        prompt: Sequence[int], seed: int, count: int
    ) -> tuple[list[int], SpeculationStats | None, list[RoundTrace]]:
        reply = _call(
            f"{base}/chat/completions",
            {
                "model": model,
                "messages": [{"role": "user", "content": prompts[seed]}],
                "max_tokens": count,
                "temperature": temperature,
                "seed": seed,
            },
        )
        return [0] * int(reply["usage"]["completion_tokens"]), None, []

    return run


def _call(url: str, body: dict[str, Any] | None) -> dict[str, Any]:
    asked = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": "Bearer none"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as reply:
            found = json.loads(reply.read())
    except urllib.error.HTTPError as error:
        raise ConfigError(f"{url} answered {error.code}: {error.read()[:200]!r}", param="--peer") from None
    except OSError as error:
        raise Unavailable(f"{url} does not answer: {error}") from None
    except ValueError:
        raise ConfigError(f"{url} did not answer with JSON", param="--peer") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{url} did not answer with an object", param="--peer")
    return found
