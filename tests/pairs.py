"""Tiny random target/draft pairs, and a replica pair joined without a network: for tests of the loops themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specgrove.core.cards import ReplicaCard
from specgrove.core.request import ChoiceFinished, Chunk, Finished, GenerateRequest, Started
from specgrove.core.sampling import SamplingFields
from specgrove.core.speculate import DraftMessage, DraftPlan, Update
from specgrove.draft.replica import DraftOptions, DraftReplica
from specgrove.engine.loader import EngineOptions, load
from specgrove.planning.planner import Planner
from specgrove.target.drafts import Link
from specgrove.target.guesses import LookupOptions
from specgrove.target.replica import TargetOptions, TargetReplica

EOS = 256
VOCAB = 257
CONTEXT = 256


def write_tokenizer(path: Path) -> None:
    """256 bytes and an end-of-sequence token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    fast.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    fast.save_pretrained(path)


def write_pair(root: Path, *, likeness: float, seed: int = 0, padding: int = 7) -> tuple[Path, Path]:
    """A random target and a draft whose weights are the target's plus noise: likeness 1 is a perfect draft.

    Logits are spread out, so that greedy text is not decided by rounding. The draft's vocabulary has padding rows.
    """
    torch.manual_seed(seed)
    target = LlamaForCausalLM(_config(VOCAB)).float()
    for weight in target.parameters():
        if weight.dim() > 1:
            weight.data.mul_(3.0)
    draft = LlamaForCausalLM(_config(VOCAB + padding)).float()
    state = draft.state_dict()
    for name, weight in target.state_dict().items():
        noise = torch.randn_like(weight) * weight.std() if weight.dim() > 1 else torch.zeros_like(weight)
        state[name][: len(weight)] = weight + (1 - likeness) * noise
    draft.load_state_dict(state)
    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(root / name)
        write_tokenizer(root / name)
    return root / "target", root / "draft"


def _config(vocab: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=EOS,
    )


class Silent:
    """An observer of both kinds that counts refused trees only."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def refused_tree(self, reason: str) -> None:
        """Remember the reason."""
        self.refused.append(reason)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@dataclass
class Answer:
    """What one request got."""

    started: Started
    tokens: dict[int, list[int]]
    text: dict[int, str]
    chunks: list[Chunk]
    ends: dict[int, ChoiceFinished]
    finished: Finished


async def ask(target: TargetReplica, **fields: Any) -> Answer:
    """Run one request to its end; greedy unless `sampling` says otherwise."""
    fields = {"request_id": "r", "model": "m", "sampling": SamplingFields(temperature=0.0)} | fields
    chunks: list[Chunk] = []
    ends: dict[int, ChoiceFinished] = {}
    started = finished = None
    async for event in target.generate(GenerateRequest(**fields)):
        if isinstance(event, Chunk):
            chunks.append(event)
        elif isinstance(event, ChoiceFinished):
            ends[event.choice] = event
        elif isinstance(event, Started):
            started = event
        else:
            finished = event
    assert started is not None
    assert finished is not None
    tokens = {c: [t for chunk in chunks if chunk.choice == c for t in chunk.tokens] for c in ends}
    text = {c: "".join(chunk.text for chunk in chunks if chunk.choice == c) for c in ends}
    return Answer(started, tokens, text, chunks, ends, finished)


class Pair:
    """A target and any number of drafts in this process, joined by direct calls. Not the product's transport."""

    def __init__(
        self,
        target: Path,
        *,
        plan: DraftPlan | None,
        planner: Planner | None = None,
        kv_slots: int = 4096,
        max_num_seqs: int = 16,
        budget: int = 256,
        lookup: LookupOptions | None = None,
        ahead: int = 0,
        contrary: bool = True,
    ) -> None:
        engine = load(str(target), EngineOptions(dtype="float32", threads=1, kv_slots=kv_slots))
        self.observer = Silent()
        card = ReplicaCard(replica="t", role="target", pool="tp", model=engine.card, served_names=("m",))
        options = TargetOptions(
            card=card,
            cluster_token="secret",
            plan=plan,
            planner=planner,
            lookup=lookup,
            draft_ahead=ahead,
            contrary=contrary,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
        )
        self.target = TargetReplica(engine, options, self.observer)
        self.target.start()
        self.drafts: dict[str, tuple[DraftReplica, Link]] = {}

    def join(self, draft: Path, name: str = "d", *, kv_slots: int = 4096) -> None:
        """Load a draft and connect it."""
        engine = load(str(draft), EngineOptions(dtype="float32", threads=1, kv_slots=kv_slots))
        replica = DraftReplica(engine, DraftOptions(replica=name), Silent())
        replica.start()
        self.connect(replica, name)

    def connect(self, replica: DraftReplica, name: str) -> None:
        """Connect a draft that runs."""
        card = ReplicaCard(replica=name, role="draft", pool="dp", model=replica.engine.card)
        link: Link

        def to_draft(updates: Sequence[Update]) -> None:
            replica.received("t", updates)

        def to_target(messages: Sequence[DraftMessage]) -> None:
            link.received(messages)

        link = self.target.attach(card, "secret", to_draft)
        self.drafts[name] = (replica, link)
        replica.connected(self.target.options.card, to_target)

    def kill(self, name: str) -> DraftReplica:
        """Cut a draft off, as a broken stream does; the replica object lives on and can be connected again."""
        replica, link = self.drafts.pop(name)
        link.lost()
        replica.lost("t")
        return replica

    async def settle(self) -> None:
        """Wait until nothing runs, then check the books of every pool."""
        for _ in range(200):
            idle = self.target.load().running == 0 and all(d.load().running == 0 for d, _ in self.drafts.values())
            if idle:
                break
            await asyncio.sleep(0.01)
        for engine in [self.target.engine, *(d.engine for d, _ in self.drafts.values())]:
            engine.pool.check()
            assert engine.pool.stats().referenced == 0

    def stop(self) -> None:
        """Stop every thread."""
        self.target.stop()
        for draft, _ in self.drafts.values():
            draft.stop()
