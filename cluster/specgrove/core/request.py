"""What a client asks for and what it gets back, as seen between ingress and target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from specgrove.core.sampling import SamplingFields
from specgrove.core.tree import TokenTree


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat; content is plain text."""

    role: str
    content: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """The request's own limits on speculation; `off` is plain decoding with the same text."""

    mode: Literal["auto", "off"] = "auto"
    max_nodes: int | None = None
    max_depth: int | None = None
    branching: tuple[int, ...] = ()
    """Trees of this shape and nothing else, whatever the server would plan; empty: as the server plans."""
    method: str | None = None
    """Drafting method in place of the server's own, for comparisons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt, n choices. Exactly one of text, tokens and messages is set."""

    request_id: str
    model: str
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    messages: tuple[ChatMessage, ...] | None = None
    sampling: SamplingFields = field(default_factory=SamplingFields)
    n: int = 1
    max_tokens: int | None = None
    """None: as many as the context allows. 0: only the prompt is evaluated."""
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    """None: none; k >= 0: the emitted token's and the k best, raw (before filters, temperature 1)."""
    echo: bool = False
    """Also return the prompt's text (and its log-probabilities when `logprobs` is set) in Started."""
    speculation: Speculation = field(default_factory=Speculation)
    prediction: str | None = None
    """Text that much of the answer is expected to be; it is only guessed from, and never changes the answer."""
    timeout_s: float | None = None
    trace: bool = False
    """Send a RoundTrace with every chunk."""
    user: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token, its raw log-probability (natural logarithm) and the best alternatives, best first."""

    token: int
    text: str
    raw: bytes
    logprob: float | None
    """None for the first prompt token."""
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrace:
    """One round of one choice: what was drafted, how far the target followed, and where the time went (seconds)."""

    tree: TokenTree
    accepted: tuple[int, ...]
    """Nodes on the accepted path."""
    emitted: tuple[int, ...]
    """Tokens of the commit: the accepted path and one correction or bonus token, cut at a stop."""
    draft: str = ""
    """Replica that drafted the tree; empty for a plain step."""
    draft_s: float = 0.0
    """Draft forward time of the tree, as the draft reported it."""
    verify_s: float = 0.0
    """Target forward time of the step."""
    round_s: float = 0.0
    """From the previous commit (or the end of prefill) to this one."""


@dataclass(slots=True, kw_only=True)
class SpeculationStats:
    """Counts of one choice, in vLLM's terms. The only mutable value in core: its owner adds to it."""

    rounds: int = 0
    """Target steps that emitted tokens, with or without a tree."""
    num_drafts: int = 0
    """Rounds that carried a tree."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_pos: list[int] = field(default_factory=list)
    stale_trees: int = 0
    accepted_prediction_tokens: int = 0
    """Of the client's prediction: tokens that were guessed from it and were right."""
    rejected_prediction_tokens: int = 0
    """And that were wrong, or came after a wrong one."""

    def add(self, other: SpeculationStats) -> None:
        """Add the counts of another choice."""
        self.rounds += other.rounds
        self.num_drafts += other.num_drafts
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_tokens += other.num_accepted_tokens
        self.stale_trees += other.stale_trees
        self.accepted_prediction_tokens += other.accepted_prediction_tokens
        self.rejected_prediction_tokens += other.rejected_prediction_tokens
        longer = max(len(self.accepted_per_pos), len(other.accepted_per_pos))
        mine = self.accepted_per_pos + [0] * (longer - len(self.accepted_per_pos))
        theirs = other.accepted_per_pos + [0] * (longer - len(other.accepted_per_pos))
        self.accepted_per_pos = [a + b for a, b in zip(mine, theirs, strict=True)]


FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """First event of a stream: the prompt is accepted."""

    request_id: str
    model: str
    seed: int
    prompt_tokens: int
    cached_tokens: int = 0
    """Prompt tokens whose KV was found in the pool."""
    prompt_text: str = ""
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """Set when echo and logprobs were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Tokens of one commit of one choice, and the text that is safe to show (no half characters, no half stops)."""

    choice: int
    tokens: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    trace: RoundTrace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceFinished:
    """The end of one choice."""

    choice: int
    reason: FinishReason
    stop_reason: int | str | None = None
    """The stop string or stop token id that ended the choice; None for end-of-sequence and length."""
    completion_tokens: int = 0
    stats: SpeculationStats = field(default_factory=SpeculationStats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Last event of a stream that ended well; errors are raised instead."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


GenerateEvent = Started | Chunk | ChoiceFinished | Finished
