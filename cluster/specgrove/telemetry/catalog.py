"""Every metric with its question. vLLM's names where vLLM has the metric, `specgrove:` for ours.

All series carry model_name and replica besides the labels given here.
"""

from __future__ import annotations

from specgrove.telemetry.tally import Spec

LATENCY_S = (.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1., 2.5, 5., 10., 30., 60., 300.)  # fmt: skip
"""Bounds for waits that a person notices, in seconds."""
PART_S = (.0001, .00025, .0005, .001, .002, .003, .005, .01, .02, .05, .1, .25, .5, 1., 2.5)  # fmt: skip
"""Bounds for parts of a round, in seconds."""
LENGTHS = (1., 2., 5., 10., 20., 50., 100., 200., 500., 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5)  # fmt: skip
"""Bounds for lengths, in tokens."""

# What a target replica counts.

NUM_DRAFTS = Spec(
    name="vllm:spec_decode_num_drafts", kind="counter",
    text="Rounds that carried a drafted tree.",
    ask="accepted draft tokens per drafted round = rate(vllm:spec_decode_num_accepted_tokens_total[w])"
        " / rate(vllm:spec_decode_num_drafts_total[w])",
)  # fmt: skip
NUM_DRAFT_TOKENS = Spec(
    name="vllm:spec_decode_num_draft_tokens", kind="counter",
    text="Drafted tokens that a target checked (nodes of trees).",
    ask="share of drafted nodes that is kept = rate(vllm:spec_decode_num_accepted_tokens_total[w])"
        " / rate(vllm:spec_decode_num_draft_tokens_total[w])",
)  # fmt: skip
NUM_ACCEPTED_TOKENS = Spec(
    name="vllm:spec_decode_num_accepted_tokens", kind="counter",
    text="Drafted tokens that the target's own draw followed.",
    ask="share of output that was drafted = rate(vllm:spec_decode_num_accepted_tokens_total[w])"
        " / rate(vllm:generation_tokens_total[w])",
)  # fmt: skip
ACCEPTED_PER_POS = Spec(
    name="vllm:spec_decode_num_accepted_tokens_per_pos", kind="counter", labels=("position",),
    text="Drafted rounds that were followed past this depth; position 0 is the first level.",
    ask="acceptance by depth = rate(vllm:spec_decode_num_accepted_tokens_per_pos_total[w])"
        " / ignoring(position) group_left rate(vllm:spec_decode_num_drafts_total[w])",
)  # fmt: skip
FIRST_TOKEN = Spec(
    name="vllm:time_to_first_token_seconds", kind="histogram", buckets=LATENCY_S,
    text="From the arrival of a request to its first token.",
    ask="95th percentile = histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[w])))",
)  # fmt: skip
INTER_TOKEN = Spec(
    name="vllm:inter_token_latency_seconds", kind="histogram", buckets=LATENCY_S,
    text="Time between two commits of one choice, whatever number of tokens they carry.",
    ask="median gap a reader sees = histogram_quantile(0.5, sum by (le)"
        " (rate(vllm:inter_token_latency_seconds_bucket[w])))",
)  # fmt: skip
E2E = Spec(
    name="vllm:e2e_request_latency_seconds", kind="histogram", buckets=LATENCY_S,
    text="From the arrival of a request to its end.",
    ask="mean = rate(vllm:e2e_request_latency_seconds_sum[w]) / rate(vllm:e2e_request_latency_seconds_count[w])",
)  # fmt: skip
RUNNING = Spec(
    name="vllm:num_requests_running", kind="gauge",
    text="Requests that are being decoded.",
    ask="load by replica = vllm:num_requests_running",
)  # fmt: skip
WAITING = Spec(
    name="vllm:num_requests_waiting", kind="gauge",
    text="Requests that wait for a place.",
    ask="too few replicas? = avg_over_time(vllm:num_requests_waiting[w]) > 0",
)  # fmt: skip
KV_USAGE = Spec(
    name="vllm:kv_cache_usage_perc", kind="gauge",
    text="Share of KV slots that live sessions hold; 1 is all.",
    ask="close to refusing requests? = vllm:kv_cache_usage_perc > 0.9",
)  # fmt: skip
PROMPT_TOKENS = Spec(
    name="vllm:prompt_tokens", kind="counter",
    text="Prompt tokens of accepted requests, cached ones included.",
    ask="prompt tokens per second = rate(vllm:prompt_tokens_total[w])",
)  # fmt: skip
GENERATION_TOKENS = Spec(
    name="vllm:generation_tokens", kind="counter",
    text="Tokens committed.",
    ask="tokens per second = rate(vllm:generation_tokens_total[w])",
)  # fmt: skip
PREFIX_QUERIES = Spec(
    name="vllm:prefix_cache_queries", kind="counter",
    text="Prompt tokens looked up in the prefix cache.",
    ask="hit rate = rate(vllm:prefix_cache_hits_total[w]) / rate(vllm:prefix_cache_queries_total[w])",
)  # fmt: skip
PREFIX_HITS = Spec(
    name="vllm:prefix_cache_hits", kind="counter",
    text="Prompt tokens whose KV was found in the prefix cache.",
    ask="prompt tokens per second not computed again = rate(vllm:prefix_cache_hits_total[w])",
)  # fmt: skip
SUCCESS = Spec(
    name="vllm:request_success", kind="counter", labels=("finished_reason",),
    text="Finished choices by reason: stop, length, abort (the client went away) or error.",
    ask="share of failures = sum(rate(vllm:request_success_total{finished_reason=\"error\"}[w]))"
        " / sum(rate(vllm:request_success_total[w]))",
)  # fmt: skip
ROUNDS = Spec(
    name="specgrove:rounds", kind="counter",
    text="Target steps that emitted tokens of a choice, with or without a tree.",
    ask="tokens per round (the speed-up in steps) = rate(vllm:generation_tokens_total[w])"
        " / rate(specgrove:rounds_total[w])",
)  # fmt: skip
STALE_TREES = Spec(
    name="specgrove:stale_trees", kind="counter",
    text="Trees that came after the session had left them.",
    ask="share of drafting that is wasted = rate(specgrove:stale_trees_total[w])"
        " / (rate(specgrove:stale_trees_total[w]) + rate(vllm:spec_decode_num_drafts_total[w]))",
)  # fmt: skip
REFUSED_TREES = Spec(
    name="specgrove:refused_trees", kind="counter", labels=("reason",),
    text="Trees that were not let near the model, by reason; lost: owed by a draft that went away.",
    ask="is a draft hostile or broken? = sum by (reason) (increase(specgrove:refused_trees_total[w])) > 0",
)  # fmt: skip
TREE_WAIT = Spec(
    name="specgrove:tree_wait_seconds", kind="histogram", buckets=PART_S,
    text="Time a session sat ready before its tree came.",
    ask="time lost on drafts = rate(specgrove:tree_wait_seconds_sum[w]) / rate(specgrove:rounds_total[w])",
)  # fmt: skip
ROUND_REST = Spec(
    name="specgrove:round_rest_seconds", kind="histogram", buckets=PART_S,
    text="Part of a drafted round that was neither draft nor target forward (codec, gRPC, queueing, sampling).",
    ask="median overhead = histogram_quantile(0.5, sum by (le) (rate(specgrove:round_rest_seconds_bucket[w])))",
)  # fmt: skip
STEP_FORWARD = Spec(
    name="specgrove:step_forward_seconds", kind="histogram", buckets=PART_S,
    text="Target forward time of one step of the loop.",
    ask="share of the device thread in the model = rate(specgrove:step_forward_seconds_sum[w])"
        " / rate(specgrove:step_seconds_sum[w])",
)  # fmt: skip
STEP = Spec(
    name="specgrove:step_seconds", kind="histogram", buckets=PART_S,
    text="Whole time of one step of the loop.",
    ask="steps per second = rate(specgrove:step_seconds_count[w])",
)  # fmt: skip
STEP_ROWS = Spec(
    name="specgrove:step_rows", kind="counter",
    text="Token rows that went through the target (prefill chunks, trees and single tokens).",
    ask="rows per step = rate(specgrove:step_rows_total[w]) / rate(specgrove:step_seconds_count[w])",
)  # fmt: skip
STEP_SESSIONS = Spec(
    name="specgrove:step_sessions", kind="counter",
    text="Sessions that took part in steps, counted once a step.",
    ask="sessions per step = rate(specgrove:step_sessions_total[w]) / rate(specgrove:step_seconds_count[w])",
)  # fmt: skip
SPECULATE_SENT = Spec(
    name="specgrove:speculate_sent_bytes", kind="counter",
    text="Bytes of messages to drafts.",
    ask="bytes on the wire per token = (rate(specgrove:speculate_sent_bytes_total[w])"
        " + rate(specgrove:speculate_received_bytes_total[w])) / rate(vllm:generation_tokens_total[w])",
)  # fmt: skip
SPECULATE_RECEIVED = Spec(
    name="specgrove:speculate_received_bytes", kind="counter",
    text="Bytes of messages from drafts.",
    ask="bytes a second = rate(specgrove:speculate_received_bytes_total[w])",
)  # fmt: skip
PLANNED_NODES = Spec(
    name="specgrove:planned_tree_nodes", kind="gauge",
    text="Nodes that the planner asks for, for the mean decoding session; 0: speculation is off.",
    ask="is it off? = specgrove:planned_tree_nodes == 0 and vllm:num_requests_running > 0",
)  # fmt: skip
PLANNED_DEPTH = Spec(
    name="specgrove:planned_tree_depth", kind="gauge",
    text="Depth of the trees that the planner asks for.",
    ask="how deep = specgrove:planned_tree_depth",
)  # fmt: skip
PREDICTED_GAIN = Spec(
    name="specgrove:predicted_gain", kind="gauge",
    text="Predicted tokens per second over those of plain decoding, at the present load.",
    ask="what speculation brings = specgrove:predicted_gain",
)  # fmt: skip
REQUEST_PROMPT = Spec(
    name="vllm:request_prompt_tokens", kind="histogram", buckets=LENGTHS,
    text="Prompt tokens of a finished request.",
    ask="mean = rate(vllm:request_prompt_tokens_sum[w]) / rate(vllm:request_prompt_tokens_count[w])",
)  # fmt: skip
REQUEST_GENERATION = Spec(
    name="vllm:request_generation_tokens", kind="histogram", buckets=LENGTHS,
    text="Tokens emitted by a finished choice.",
    ask="mean = rate(vllm:request_generation_tokens_sum[w]) / rate(vllm:request_generation_tokens_count[w])",
)  # fmt: skip
LIVE_DRAFTS = Spec(
    name="specgrove:live_drafts", kind="gauge",
    text="Drafts connected to this target.",
    ask="decoding plainly for want of drafts? = specgrove:live_drafts == 0",
)  # fmt: skip

TARGET = (
    NUM_DRAFTS, NUM_DRAFT_TOKENS, NUM_ACCEPTED_TOKENS, ACCEPTED_PER_POS, FIRST_TOKEN, INTER_TOKEN, E2E, RUNNING,
    WAITING, KV_USAGE, PROMPT_TOKENS, GENERATION_TOKENS, PREFIX_QUERIES, PREFIX_HITS, SUCCESS, ROUNDS, STALE_TREES,
    REFUSED_TREES, TREE_WAIT, ROUND_REST, STEP_FORWARD, STEP, STEP_ROWS, STEP_SESSIONS, REQUEST_PROMPT,
    REQUEST_GENERATION, LIVE_DRAFTS, PLANNED_NODES, PLANNED_DEPTH, PREDICTED_GAIN,
    SPECULATE_SENT, SPECULATE_RECEIVED,
)  # fmt: skip

# What a draft replica counts.

PROPOSED_TREES = Spec(
    name="specgrove:proposed_trees", kind="counter", labels=("target",),
    text="Trees this draft sent, by target replica.",
    ask="whom does this draft work for? = sum by (target) (rate(specgrove:proposed_trees_total[w]))",
)  # fmt: skip
PROPOSED_NODES = Spec(
    name="specgrove:proposed_nodes", kind="counter", labels=("target",),
    text="Nodes of the trees this draft sent, by target replica.",
    ask="nodes per tree = rate(specgrove:proposed_nodes_total[w]) / rate(specgrove:proposed_trees_total[w])",
)  # fmt: skip
PROPOSE = Spec(
    name="specgrove:propose_seconds", kind="histogram", buckets=PART_S,
    text="Forward time that went into one tree.",
    ask="mean = rate(specgrove:propose_seconds_sum[w]) / rate(specgrove:propose_seconds_count[w])",
)  # fmt: skip
DRAFT_FORWARD = Spec(
    name="specgrove:draft_forward_seconds", kind="histogram", buckets=PART_S,
    text="Time of one forward pass of the draft, shared by all sessions in it.",
    ask="share of time the draft is busy = rate(specgrove:draft_forward_seconds_sum[w])",
)  # fmt: skip
DRAFT_ROWS = Spec(
    name="specgrove:draft_rows", kind="counter",
    text="Token rows that went through the draft.",
    ask="rows per pass = rate(specgrove:draft_rows_total[w]) / rate(specgrove:draft_forward_seconds_count[w])",
)  # fmt: skip
DRAFT_SESSIONS = Spec(
    name="specgrove:draft_sessions", kind="gauge",
    text="Sessions this draft serves.",
    ask="load by draft = specgrove:draft_sessions",
)  # fmt: skip

DRAFT = (PROPOSED_TREES, PROPOSED_NODES, PROPOSE, DRAFT_FORWARD, DRAFT_ROWS, DRAFT_SESSIONS, KV_USAGE)
