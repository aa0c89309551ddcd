"""Session: one choice being decoded. One target replica owns it, and only its device thread touches it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from specgrove.core.prefix import PrefixHash
from specgrove.core.request import SpeculationStats
from specgrove.core.speculate import DraftPlan
from specgrove.core.tree import EMPTY, TokenTree
from specgrove.engine.batch import Segment
from specgrove.engine.kv_pool import KVSequence
from specgrove.engine.runner import Engine
from specgrove.planning.planner import PLAIN, Asked
from specgrove.sampling.noise import NOISE_VERSION, NoiseKey
from specgrove.sampling.verify import Sampler, Verdict
from specgrove.sampling.warp import Warp
from specgrove.target.guesses import PREDICTION, Guesses
from specgrove.target.stops import Stop, StopRules, TextTail

if TYPE_CHECKING:
    from specgrove.target.drafts import Link
    from specgrove.target.job import Job

REMEMBERED_COMMITS = 64
"""A late tree may extend any of the last so many commits."""


@dataclass(slots=True, eq=False)
class Session:
    """Committed tokens, KV, sampling state and stop state of one choice.

    Between steps `sequence.length == len(tokens) - 1`: the last committed token has no KV row yet.
    """

    job: Job
    choice: int
    tokens: list[int]
    sequence: KVSequence
    sampler: Sampler
    text: TextTail
    ceiling: DraftPlan | None
    """The most that drafts may be asked for; None when this session always decodes plainly."""
    plan: DraftPlan | None = None
    """What its draft is asked for now; None while it decodes plainly."""
    asked: Asked = PLAIN
    plan_version: int = 0
    asked_at: float = 0.0
    """When the last round ended, and the next tree was asked for."""
    luck: float | None = None
    """Share of visited nodes whose children held what came next, lately; None before the first tree."""
    id: bytes = field(default_factory=lambda: os.urandom(16))
    epoch: int = 1
    seq: int = 0
    prefix: PrefixHash = field(default_factory=PrefixHash)
    known: deque[tuple[int, int, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_COMMITS))
    """(length, hash, time) of the last commits that a draft was told of: what a tree may extend."""
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    link: Link | None = None
    told: int = 0
    """Committed tokens that its draft has been told of."""
    guesses: Guesses | None = None
    """What this replica guesses by itself; None: nothing."""
    guess: tuple[int, ...] = ()
    """Such a guess for the next round, and which kind it is."""
    guess_kind: str = ""
    coming: tuple[tuple[int, ...], str] = ((), "")
    """The guess for the round after this one, which is still being settled."""
    tree: TokenTree = EMPTY
    """All nodes of the next round: the draft's and the guess."""
    drafted: TokenTree = EMPTY
    """The draft's own."""
    cut: bool = False
    """Not all of it fitted into the step."""
    tree_draft_s: float = 0.0
    tree_from: str = ""
    wait_until: float = 0.0
    """Until when the step loop holds this session for its tree."""
    waited_s: float = 0.0
    last_emit: float = 0.0
    finished: Stop | None = None
    closed: bool = False
    """Its end was sent and its KV given back."""

    def __post_init__(self) -> None:
        self.prefix.extend(self.tokens)

    @property
    def generated(self) -> int:
        """Output tokens so far."""
        return len(self.tokens) - len(self.job.prompt)

    def segment(self, room: int, max_len: int) -> Segment:
        """Rows of the next step: the pending token and as much of the tree as fits in `room` rows and the context."""
        left = min(self.job.max_tokens - self.generated, max_len - len(self.tokens))
        whole = self.tree
        self.tree = whole.trim(max_nodes=max(0, room - 1), max_depth=max(0, left - 1))
        self.cut = len(self.tree) < len(whole)
        base = len(self.tokens)
        positions = [base - 1, *self.tree.positions(base)]
        self.sequence.reserve(positions)
        return Segment(
            self.sequence, [self.tokens[-1], *self.tree.tokens], positions, self._mask(), range(len(self.tree) + 1)
        )

    def _mask(self) -> NDArray[np.bool_] | None:
        n = len(self.tree)
        if n == 0:
            return None
        mask = np.ones((n + 1, n + 1), dtype=np.bool_)
        mask[0, 1:] = False
        mask[1:, 1:] = self.tree.mask()
        return mask

    def take(self, verdict: Verdict) -> tuple[list[int], str]:
        """Take a round's tokens, cut at a stop (then `finished` is set). Returns the tokens and text to send.

        Everything after the ending token is dropped and not counted (papers A.7).
        """
        kept: list[int] = []
        shown: list[str] = []
        for token in verdict.emitted:
            kept.append(token)
            text, self.finished = self.text.push(token)
            shown.append(text)
            if self.finished is not None:
                break
        self._count(kept, accepted=min(len(verdict.accepted), len(kept)))
        self.extend(kept)
        return kept, "".join(shown)

    def settle(self, verdict: Verdict, kept: int) -> None:
        """Keep the KV rows of the pending token and of the accepted path; of `kept` new tokens the last has no row."""
        pending = self.tokens[-kept - 1]
        rows = [0, *(node + 1 for node in verdict.accepted)][:kept]
        tokens = [pending, *(self.tree.tokens[node] for node in verdict.accepted)][:kept]
        self.sequence.commit(rows, tokens)
        self.begin_round()

    def extend(self, tokens: Sequence[int]) -> None:
        """Append committed tokens."""
        self.tokens.extend(tokens)
        self.sampler.warp.append(tokens)
        self.prefix.extend(tokens)
        if self.guesses is not None:
            self.guesses.extend(tokens)

    def guessed(self, emitted: Sequence[int]) -> tuple[int, int]:
        """Of the guess: tokens that the round checked, and how many of them `emitted` begins with."""
        offered = len(self.tree.follow(self.guess))
        if self.finished is not None:
            offered = min(offered, len(emitted))  # nothing was drawn after the end
        right = next((i for i, pair in enumerate(zip(self.guess, emitted, strict=False)) if pair[0] != pair[1]), None)
        return offered, min(offered, len(emitted) if right is None else right)

    def _count(self, emitted: Sequence[int], *, accepted: int) -> None:
        stats = self.stats
        stats.rounds += 1
        if self.guess_kind == PREDICTION:
            offered, right = self.guessed(emitted)
            stats.accepted_prediction_tokens += right
            stats.rejected_prediction_tokens += offered - right
        if len(self.tree) == 0:
            return
        stats.num_drafts += 1
        stats.num_draft_tokens += len(self.tree)
        stats.num_accepted_tokens += accepted
        depth = self.tree.depth
        stats.accepted_per_pos += [0] * (depth - len(stats.accepted_per_pos))
        for position in range(accepted):
            stats.accepted_per_pos[position] += 1

    @property
    def behind(self) -> int:
        """Committed tokens without KV beyond the pending one; above 0 only after a preemption."""
        return len(self.tokens) - 1 - self.sequence.length

    def catch_up(self, limit: int) -> Segment:
        """Rows that compute lost KV again, at most `limit`; no logits are asked for."""
        first = self.sequence.length
        tokens = self.tokens[first : min(first + limit, len(self.tokens) - 1)]
        positions = range(first, first + len(tokens))
        self.sequence.reserve(positions)
        return Segment(self.sequence, tokens, positions, None, [])

    def set_tree(self, tree: TokenTree, *, draft: str, draft_s: float) -> None:
        """Take the draft's tree for the next round."""
        self.drafted = self.tree = tree
        self.tree_from, self.tree_draft_s = draft, draft_s

    def join(self) -> None:
        """The round begins: what the draft sent and what was guessed here are one tree."""
        if self.guess:
            asked = self.job.request.speculation
            both = self.drafted.union(TokenTree.chain(self.guess))
            self.tree = both.trim(max_nodes=asked.max_nodes or len(both), max_depth=asked.max_depth or both.depth)

    def begin_round(self) -> None:
        """The last round is over; what was guessed meanwhile is for the next one."""
        self.drop_tree()
        (self.guess, self.guess_kind), self.coming = self.coming, ((), "")

    def drop_tree(self) -> None:
        """Forget all nodes."""
        self.tree = self.drafted = EMPTY
        self.tree_from, self.tree_draft_s = "", 0.0
        self.guess, self.guess_kind = (), ""

    def rewind(self, sequence: KVSequence) -> None:
        """Start over from tokens alone (preemption): the KV is computed again from the committed tokens."""
        self.sequence.release()
        self.sequence = sequence


def session_plan(plan: DraftPlan | None, job: Job, choice: int) -> DraftPlan | None:
    """The replica's plan within the request's own limits; None when this request decodes plainly."""
    asked = job.request.speculation
    if plan is None or asked.mode == "off" or job.max_tokens <= 1:
        return None
    branching = (asked.branching or plan.branching)[: asked.max_depth]
    nodes = plan.max_nodes if asked.max_nodes is None else min(plan.max_nodes, asked.max_nodes)
    if not branching or nodes < 1:
        return None
    return replace(
        plan,
        method=asked.method or ("tree" if asked.branching else plan.method),
        branching=branching,
        max_nodes=nodes,
        temperature=job.params.temperature,
        seed=job.params.seed,
        choice=choice,
        noise_version=NOISE_VERSION,
    )


def open_sessions(job: Job, sequence: KVSequence, engine: Engine, plan: DraftPlan | None) -> list[Session]:
    """One session per choice. All name the prompt's KV until the prompt is computed; then each gets its own fork."""
    request = job.request
    stops = StopRules(
        eos_ids=frozenset() if request.ignore_eos else frozenset(engine.eos_token_ids),
        stop_ids=frozenset(request.stop_token_ids),
        strings=request.stop,
        min_tokens=request.min_tokens,
        max_tokens=job.max_tokens,
    )
    return [
        Session(
            job=job,
            choice=choice,
            tokens=list(job.prompt),
            sequence=sequence,
            sampler=Sampler(
                Warp(
                    job.params,
                    prompt=job.prompt,
                    stop_ids=sorted(stops.eos_ids | stops.stop_ids),
                    vocab_size=engine.card.vocab_size,
                    device=engine.device,
                ),
                NoiseKey(job.params.seed, choice),
            ),
            text=TextTail(engine.codec.stream(job.prompt), stops),
            ceiling=session_plan(plan, job, choice),
            guesses=job.guesses.fork() if job.guesses is not None else None,
        )
        for choice in range(request.n)
    ]
