"""Raw log-probabilities of emitted and prompt tokens, as clients see them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specgrove.core.request import TokenLogprob
from specgrove.engine.tokenizer import TextCodec
from specgrove.sampling.verify import raw_logprobs


def token_logprobs(
    logits: Tensor,  # [rows, vocab] raw target logits
    tokens: Sequence[int],  # [rows]
    top: int | None,
    codec: TextCodec,
) -> tuple[TokenLogprob, ...]:
    """One entry per row; empty when log-probabilities were not asked for (`top` is None)."""
    if top is None:
        return ()
    raw = raw_logprobs(logits, tokens, top)
    return tuple(
        _entry(token, logprob, codec, tuple(_entry(t, value, codec) for t, value in best))
        for token, logprob, best in zip(tokens, raw.chosen, raw.top, strict=True)
    )


def unscored(token: int, codec: TextCodec) -> TokenLogprob:
    """The entry of a token that nothing comes before."""
    return _entry(token, None, codec)


def _entry(token: int, logprob: float | None, codec: TextCodec, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
    return TokenLogprob(token, codec.token_text(token), codec.token_bytes(token), logprob, top)
