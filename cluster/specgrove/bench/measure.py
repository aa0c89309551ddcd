"""One run of one variant, and the variants that `bench speed` compares."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from specgrove.client import Client
from specgrove.core.request import RoundTrace, Speculation, SpeculationStats
from specgrove.engine.reference import Reference

PLAIN = "specgrove plain"
SPECULATIVE = "specgrove speculative"
REFERENCE = "transformers plain"
ASSISTED = ("transformers assisted (defaults)", "transformers assisted (constant)")


@dataclass(slots=True, kw_only=True)
class Run:
    """One prompt through one variant. Times in seconds."""

    variant: str
    repeat: int
    prompt: int
    kind: str
    seconds: float
    tokens: list[int]
    stats: dict[str, Any] | None = None
    """SpeculationStats of the server's runs."""
    rounds: list[dict[str, float]] = field(default_factory=list)
    """Per round with a tree: draft_s, verify_s, round_s, nodes, emitted."""

    @property
    def count(self) -> int:
        """New tokens."""
        return len(self.tokens)


Variant = Callable[[Sequence[int], int, int], tuple[list[int], SpeculationStats | None, list[RoundTrace]]]
"""(prompt ids, seed, count) to `count` new tokens, counts and traces."""


def variants(
    client: Client, model: str, reference: Reference, *, temperature: float, length: int
) -> dict[str, Variant]:
    """The five ways to generate new tokens; end-of-sequence ends none of them."""

    def served(mode: Literal["auto", "off"]) -> Variant:
        def run(
            prompt: Sequence[int], seed: int, count: int
        ) -> tuple[list[int], SpeculationStats | None, list[RoundTrace]]:
            done = client.complete(
                model,
                prompt,
                max_tokens=count,
                temperature=temperature,
                top_k=0,
                top_p=1.0,
                repetition_penalty=1.0,
                seed=seed,
                ignore_eos=True,
                trace=mode == "auto",
                speculation=Speculation(mode=mode),
            )
            choice = done.choices[0]
            return choice.tokens, choice.stats, choice.traces

        return run

    def plain(
        prompt: Sequence[int], seed: int, count: int
    ) -> tuple[list[int], SpeculationStats | None, list[RoundTrace]]:
        return list(reference.plain(prompt, count, temperature=temperature, seed=seed).tokens), None, []

    def assisted(schedule: Any) -> Variant:
        def run(
            prompt: Sequence[int], seed: int, count: int
        ) -> tuple[list[int], SpeculationStats | None, list[RoundTrace]]:
            made = reference.assisted(
                prompt, count, temperature=temperature, seed=seed, schedule=schedule, length=length
            )
            return list(made.tokens), None, []

        return run

    return {
        REFERENCE: plain,
        ASSISTED[0]: assisted("default"),
        ASSISTED[1]: assisted("constant"),
        PLAIN: served("off"),
        SPECULATIVE: served("auto"),
    }


def timed(name: str, variant: Variant, prompt: Sequence[int], *, count: int, index: int, kind: str, repeat: int) -> Run:
    """Run once and keep everything that a later question may need."""
    begun = time.perf_counter()
    tokens, stats, traces = variant(prompt, index, count)
    seconds = time.perf_counter() - begun
    rounds = [
        {
            "draft_s": trace.draft_s,
            "verify_s": trace.verify_s,
            "round_s": trace.round_s,
            "nodes": len(trace.tree),
            "emitted": len(trace.emitted),
        }
        for trace in traces
        if len(trace.tree)
    ]
    return Run(
        variant=name,
        repeat=repeat,
        prompt=index,
        kind=kind,
        seconds=seconds,
        tokens=tokens,
        stats=asdict(stats) if stats is not None else None,
        rounds=rounds,
    )
