"""Hypothesis strategies for every value that crosses the wire."""

from __future__ import annotations

from hypothesis import strategies as st

from specgrove.core.cards import Load, ModelCard, ReplicaCard
from specgrove.core.protocols import ModelStatus
from specgrove.core.request import (
    ChatMessage,
    ChoiceFinished,
    Chunk,
    Finished,
    GenerateRequest,
    RoundTrace,
    Speculation,
    SpeculationStats,
    Started,
    TokenLogprob,
)
from specgrove.core.sampling import SamplingFields
from specgrove.core.speculate import Closed, Committed, Declined, DraftPlan, DraftTree, Opened, Planned, Reopen
from specgrove.core.tree import TokenTree

text = st.text(max_size=8)
ids = st.integers(0, 2**31 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
uint64 = st.integers(0, 2**64 - 1)
number = st.floats(allow_nan=False)
seconds = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
session = st.binary(min_size=16, max_size=16)


def many(values, size=4):
    """A tuple of values."""
    return st.lists(values, max_size=size).map(tuple)


def maybe(values):
    """The value or None."""
    return st.none() | values


@st.composite
def trees(draw):
    """Any tree in topological order."""
    size = draw(st.integers(0, 12))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    return TokenTree(tuple(draw(ids) for _ in range(size)), parents)


model_cards = st.builds(
    ModelCard, name=text, architecture=text, parameters=int64, layers=ids, hidden_size=ids, vocab_size=ids,
    vocab_hash=text, weights_digest=text, dtype=text, max_model_len=ids, exits=many(ids), trained_on=text,
    scores=st.dictionaries(text, number, max_size=3),
)  # fmt: skip
cards = st.builds(
    ReplicaCard, replica=st.text(min_size=1, max_size=8), role=st.sampled_from(["target", "draft"]), pool=text,
    model=model_cards, served_names=many(text), draft_pools=many(text), generate_address=text, speculate_address=text,
    node=text, protocol_version=ids, noise_version=ids,
    pass_s=st.dictionaries(st.integers(1, 512), st.floats(1e-6, 10.0), max_size=3),
)  # fmt: skip
loads = st.builds(
    Load, running=ids, waiting=ids, queued_tokens=int64, kv_slots_used=int64, kv_slots_total=int64,
    draining=st.booleans(), drafts=many(text),
)  # fmt: skip


@st.composite
def statuses(draw):
    """As many loads as replicas."""
    replicas = draw(many(cards, 2))
    return ModelStatus(
        name=draw(text),
        replicas=replicas,
        loads=tuple(draw(loads) for _ in replicas),
        drafts=draw(many(cards, 2)),
        state=draw(st.sampled_from(["ready", "unavailable"])),
        created=draw(int64),
    )


sampling = st.builds(
    SamplingFields, temperature=maybe(number), top_k=maybe(int32), top_p=maybe(number), min_p=maybe(number),
    repetition_penalty=maybe(number), presence_penalty=maybe(number), frequency_penalty=maybe(number),
    logit_bias=maybe(st.dictionaries(ids, number, max_size=3)), allowed_token_ids=maybe(many(ids)),
    banned_token_ids=maybe(many(ids)), seed=maybe(uint64),
)  # fmt: skip
prompts = st.one_of(
    text.map(lambda value: {"text": value}),
    many(int32).map(lambda value: {"tokens": value}),
    many(st.builds(ChatMessage, text, text, maybe(text))).map(lambda value: {"messages": value}),
)


@st.composite
def requests(draw):
    """One of the three kinds of prompt."""
    return GenerateRequest(
        **draw(prompts),
        request_id=draw(text),
        model=draw(text),
        sampling=draw(sampling),
        n=draw(int32),
        max_tokens=draw(maybe(int32)),
        min_tokens=draw(int32),
        stop=draw(many(text)),
        stop_token_ids=draw(many(int32)),
        ignore_eos=draw(st.booleans()),
        logprobs=draw(maybe(int32)),
        echo=draw(st.booleans()),
        speculation=draw(
            st.builds(
                Speculation,
                mode=st.sampled_from(["auto", "off"]),
                max_nodes=maybe(int32),
                max_depth=maybe(int32),
                branching=many(int32),
                method=maybe(text),
            )
        ),
        prediction=draw(maybe(text)),
        timeout_s=draw(maybe(number)),
        trace=draw(st.booleans()),
        user=draw(maybe(text)),
        metadata=draw(st.dictionaries(text, text, max_size=3)),
    )


leaf = st.builds(TokenLogprob, ids, text, st.binary(max_size=4), maybe(number))
logprobs = st.builds(TokenLogprob, ids, text, st.binary(max_size=4), maybe(number), many(leaf))
traces = st.builds(
    RoundTrace, tree=trees(), accepted=many(ids), emitted=many(ids), draft=text, draft_s=seconds, verify_s=seconds,
    round_s=seconds,
)  # fmt: skip
stats = st.builds(
    SpeculationStats, rounds=int64, num_drafts=int64, num_draft_tokens=int64, num_accepted_tokens=int64,
    accepted_per_pos=st.lists(int64, max_size=4), stale_trees=int64,
    accepted_prediction_tokens=int64, rejected_prediction_tokens=int64,
)  # fmt: skip
events = st.one_of(
    st.builds(
        Started, request_id=text, model=text, seed=uint64, prompt_tokens=ids, cached_tokens=ids, prompt_text=text,
        prompt_logprobs=many(logprobs),
    ),
    st.builds(Chunk, choice=ids, tokens=many(ids), text=text, logprobs=many(logprobs), trace=maybe(traces)),
    st.builds(
        ChoiceFinished, choice=ids, reason=st.sampled_from(["stop", "length", "cancelled", "error"]),
        stop_reason=st.one_of(st.none(), text, ids), completion_tokens=ids, stats=stats,
    ),
    st.builds(Finished, prompt_tokens=ids, completion_tokens=ids, cached_tokens=ids),
)  # fmt: skip

plans = st.builds(
    DraftPlan, version=ids, method=text, branching=many(ids), max_nodes=ids, ahead=ids, temperature=number, seed=uint64,
    choice=ids, noise_version=ids,
)  # fmt: skip
key = {"session": session, "epoch": int64, "seq": int64}
updates = st.one_of(
    st.builds(Opened, **key, tokens=many(ids), plan=plans, wants_tree=st.booleans()),
    st.builds(Committed, **key, tokens=many(ids), length=int64, prefix_hash=uint64),
    st.builds(Planned, **key, plan=plans),
    st.builds(Closed, **key),
)
messages = st.one_of(
    st.builds(
        DraftTree, session=session, epoch=int64, base_length=int64, prefix_hash=uint64, plan_version=ids, tree=trees(),
        fault=st.just(""), draft_s=seconds, queued_s=seconds, levels=st.integers(0, 64),
    ),
    st.builds(Reopen, session=session),
    st.builds(Declined, session=session, reason=text),
)  # fmt: skip
