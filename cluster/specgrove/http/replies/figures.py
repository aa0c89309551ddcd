"""`usage` and `metrics` of a reply."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from specgrove.core.request import SpeculationStats


def usage(
    *,
    prompt_tokens: int,
    completion_tokens: int,
    cached_tokens: int,
    accepted_prediction: int,
    rejected_prediction: int,
) -> dict[str, Any]:
    """OpenAI's usage object. A prompt counts once, whatever n is.

    Tokens of the client's prediction are guesses: the rejected ones cost a little time and are not part of the output.
    """
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted_prediction,
            "rejected_prediction_tokens": rejected_prediction,
        },
    }


def speculative_decoding(stats: SpeculationStats) -> dict[str, Any]:
    """vLLM's per-request acceptance metrics (its acceptance_metrics page) for one choice, and two counts of ours.

    acceptance_histogram[j]: steps with a tree in which exactly j drafted tokens were accepted. num_spec_tokens: the
    deepest acceptance that was counted. num_draft_tokens counts all nodes of a tree, so draft_acceptance_rate is per
    node. Ours: num_rounds, steps with or without a tree; num_stale_trees, trees that came too late.
    """
    reached = [stats.num_drafts, *stats.accepted_per_pos, 0]
    steps, accepted, drafted = stats.num_drafts, stats.num_accepted_tokens, stats.num_draft_tokens
    return {
        "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": [at_least - deeper for at_least, deeper in pairwise(reached)],
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": len(stats.accepted_per_pos),
        "num_rounds": stats.rounds,
        "num_stale_trees": stats.stale_trees,
    }
