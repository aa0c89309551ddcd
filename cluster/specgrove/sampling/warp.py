"""From the target's logits to the scores its draw is made from: penalties, bans, temperature and filters.

The order, which is transformers' where transformers has the processor:

 1. logit bias (added; transformers' sequence_bias of length one)
 2. repetition penalty (transformers: prompt and output; a positive logit is divided, a negative one multiplied)
 3. presence and frequency penalty (OpenAI: over output tokens only, logit - count * frequency - (count > 0) * presence)
 4. bans: stop ids while fewer than min_tokens are out, banned ids, ids outside the allowed ones
 5. temperature
 6. top-k (ties with the k-th score stay, as in transformers)
 7. top-p over what is left (the lowest id first among equal scores at the edge)
 8. min-p over what is left

At temperature 0 steps 5 to 8 are skipped: they never remove the best token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specgrove.core.sampling import SamplingParams
from specgrove.sampling.check import check_params
from specgrove.sampling.filters import keep


class Warp:
    """The sampling parameters of one choice, bound to its prompt and its output so far.

    Raises RequestError, naming the parameter, for values out of range and when nothing would be left to draw.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        prompt: Sequence[int],
        stop_ids: Sequence[int],
        vocab_size: int,
        device: torch.device | str,
    ) -> None:
        stop_ids = [token for token in stop_ids if 0 <= token < vocab_size]
        check_params(params, vocab_size=vocab_size, stop_ids=stop_ids)
        self.params = params
        self.greedy = params.temperature == 0
        self._device = torch.device(device)
        self._out = 0
        self._penalises = params.presence_penalty != 0 or params.frequency_penalty != 0
        self._repeats = params.repetition_penalty != 1
        self._counts = torch.zeros(vocab_size, device=device) if self._penalises else None
        self._seen = self._flags(vocab_size, prompt) if self._repeats else None
        self._stops = self._flags(vocab_size, stop_ids) if params.min_tokens > 0 and stop_ids else None
        self._banned = self._bans(vocab_size)
        self._bias = self._biases(vocab_size) if params.logit_bias else None
        in_use = 0 < params.top_k < vocab_size or params.top_p < 1 or params.min_p > 0
        self._filters = in_use and not self.greedy
        self._plain = not (
            self._penalises or self._repeats or self._filters or self._bias is not None or self._banned is not None
        )

    @property
    def plain(self) -> bool:
        """Nothing but the temperature stands between the logits and the draw, here and at every later position."""
        return self._plain and (self._stops is None or self._out >= self.params.min_tokens)

    def append(self, tokens: Sequence[int]) -> None:
        """Tokens that were committed to the output."""
        self._out += len(tokens)
        if (self._counts is None and self._seen is None) or not tokens:
            return
        ids = torch.tensor(list(tokens), device=self._device)
        if self._counts is not None:
            self._counts.index_add_(0, ids, torch.ones(len(tokens), device=self._device))
        if self._seen is not None:
            self._seen[ids] = True

    def scores(self, logits: Tensor, path: Sequence[int] = ()) -> Tensor:
        """[vocab] -> [vocab] float32: the draw is the argmax of this, plus noise at T > 0; -inf for excluded tokens.

        `path` holds the tokens of the node's own ancestors beyond the committed output, the node itself included.
        """
        return self.rows(logits[None], [path])[0]

    def rows(self, logits: Tensor, paths: Sequence[Sequence[int]]) -> Tensor:
        """scores() of several nodes at once: [rows, vocab] and one path per row -> [rows, vocab]."""
        x = logits.to(torch.float32)
        if self.greedy and self.plain:
            return x
        if self._bias is not None:
            x = x + self._bias
        x = self._exclude(self._penalise(x, paths), paths)
        params = self.params
        if self.greedy:
            return x
        if params.temperature != 1:
            x = x / params.temperature
        if self._filters:
            x = keep(x, top_k=params.top_k, top_p=params.top_p, min_p=params.min_p)
        return x

    def _penalise(self, x: Tensor, paths: Sequence[Sequence[int]]) -> Tensor:
        """Steps 2 and 3, with each row's own path counted as if it were committed."""
        if self._seen is None and self._counts is None:
            return x
        at = [[row for row, path in enumerate(paths) for _ in path], [token for path in paths for token in path]]
        where = tuple(torch.tensor(at, dtype=torch.int64, device=self._device)) if at[0] else None
        if self._seen is not None:
            seen = self._seen.expand_as(x)
            if where is not None:
                seen = seen.clone().index_put_(where, torch.ones((), dtype=torch.bool, device=self._device))
            penalty = self.params.repetition_penalty
            x = torch.where(seen, torch.where(x < 0, x * penalty, x / penalty), x)
        if self._counts is not None:
            counts = self._counts.expand_as(x)
            if where is not None:
                counts = counts.clone().index_put_(where, torch.ones((), device=self._device), accumulate=True)
            x = x - (counts * self.params.frequency_penalty + (counts > 0) * self.params.presence_penalty)
        return x

    def _exclude(self, x: Tensor, paths: Sequence[Sequence[int]]) -> Tensor:
        """Step 4."""
        if self._banned is not None:
            x = torch.where(self._banned, -torch.inf, x)
        if self._stops is not None:
            short = [self._out + len(path) < self.params.min_tokens for path in paths]
            if any(short):
                x = torch.where(self._stops & torch.tensor(short, device=self._device)[:, None], -torch.inf, x)
        return x

    def _flags(self, vocab_size: int, ids: Sequence[int]) -> Tensor:
        flags = torch.zeros(vocab_size, dtype=torch.bool)
        flags[torch.tensor(list(ids), dtype=torch.int64)] = True
        return flags.to(self._device)

    def _bans(self, vocab_size: int) -> Tensor | None:
        allowed, banned = self.params.allowed_token_ids, self.params.banned_token_ids
        if not allowed and not banned:
            return None
        out = self._flags(vocab_size, banned)
        return out | ~self._flags(vocab_size, allowed) if allowed else out

    def _biases(self, vocab_size: int) -> Tensor:
        bias = torch.zeros(vocab_size)
        for token, value in self.params.logit_bias.items():
            bias[token] = value
        return bias.to(self._device)
