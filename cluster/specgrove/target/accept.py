"""From a client's request to a job: tokenise, fill in defaults, refuse what cannot be honoured."""

from __future__ import annotations

import secrets
import time

from specgrove.config.pools import nodes_of
from specgrove.core.request import GenerateRequest
from specgrove.core.sampling import SamplingParams
from specgrove.core.speculate import DraftPlan
from specgrove.drafters import CONTRARY, METHODS
from specgrove.engine.runner import Engine
from specgrove.errors import RequestError
from specgrove.sampling.check import check_params
from specgrove.target.guesses import Guesses, LookupOptions
from specgrove.target.job import Emit, Job


def accept(
    request: GenerateRequest,
    engine: Engine,
    *,
    plan: DraftPlan | None,
    max_num_seqs: int,
    emit: Emit,
    lookup: LookupOptions | None = None,
    contrary: bool = False,
) -> Job:
    """A job ready to be queued. Raises RequestError that names the field.

    lookup: how the text is searched for guesses; None: not.  contrary: whether requests may ask for drafts that are
    wrong on purpose.
    """
    if not 1 <= request.n <= max_num_seqs:
        raise RequestError(
            f"n is {request.n}, but a replica of this model runs at most {max_num_seqs} sequences at once "
            "(max_num_seqs)",
            param="n",
        )
    prompt = _prompt(request, engine)
    _check_shape(request, plan, contrary=contrary)
    max_tokens = _max_tokens(request, len(prompt), engine.card.max_model_len)
    if request.min_tokens > max_tokens:
        raise RequestError(f"min_tokens {request.min_tokens} is over max_tokens {max_tokens}", param="min_tokens")
    params = SamplingParams.resolve(
        request.sampling, engine.defaults, seed=secrets.randbits(63), min_tokens=request.min_tokens
    )
    if (wrong := next((t for t in request.stop_token_ids if not 0 <= t < engine.card.vocab_size), None)) is not None:
        raise RequestError(
            f"stop_token_ids names token {wrong}, outside the vocabulary of {engine.card.vocab_size}",
            param="stop_token_ids",
        )
    stop_ids = [*request.stop_token_ids, *(() if request.ignore_eos else engine.eos_token_ids)]
    check_params(params, vocab_size=engine.card.vocab_size, stop_ids=stop_ids)
    arrived = time.perf_counter()
    deadline = arrived + request.timeout_s if request.timeout_s is not None else None
    return Job(
        request=request,
        prompt=prompt,
        params=params,
        max_tokens=max_tokens,
        emit=emit,
        arrived=arrived,
        deadline=deadline,
        guesses=_guesses(request, prompt, max_tokens, engine, lookup),
    )


def _check_shape(request: GenerateRequest, plan: DraftPlan | None, *, contrary: bool) -> None:
    """A shape or a method of the request's own must be one that this replica's drafts can be asked for."""
    asked = request.speculation
    methods = set(METHODS) if contrary else set(METHODS) - {CONTRARY}
    if asked.method is not None and asked.method not in methods:
        known = ", ".join(sorted(methods))
        raise RequestError(f"no drafting method {asked.method!r}; known: {known}", param="speculation.method")
    param = "speculation.branching" if asked.branching else "speculation.method" if asked.method else None
    if param is not None and (plan is None or asked.mode == "off"):
        why = "speculation.mode is off" if asked.mode == "off" else "no draft serves this model"
        raise RequestError(f"{param.removeprefix('speculation.')} is set, but {why}; remove one of them", param=param)
    if asked.method == "chain" and max(asked.branching or (1,)) > 1:
        raise RequestError("a chain has one child per node; set branching to ones or remove it", param=param)
    if plan is None or not asked.branching:
        return
    if len(asked.branching) > plan.max_depth or nodes_of(asked.branching) > plan.max_nodes:
        raise RequestError(
            f"a tree of {nodes_of(asked.branching)} nodes and depth {len(asked.branching)} is over this replica's "
            f"limits of {plan.max_nodes} and {plan.max_depth} (speculative_config)",
            param="speculation.branching",
        )


def _guesses(
    request: GenerateRequest, prompt: tuple[int, ...], max_tokens: int, engine: Engine, lookup: LookupOptions | None
) -> Guesses | None:
    """None when the request wants no speculation, or one shape of tree alone. A long prompt takes a while."""
    prediction = _prediction(request, engine)[:max_tokens]
    asked = request.speculation
    if asked.mode == "off" or asked.branching or max_tokens <= 1 or not (lookup or prediction):
        return None
    return Guesses(prompt, lookup=lookup, prediction=prediction)


def _prediction(request: GenerateRequest, engine: Engine) -> tuple[int, ...]:
    """Its tokens as a text of their own; where they begin otherwise in the answer, a guess is lost and found again."""
    if not request.prediction:
        return ()
    try:
        return engine.codec.encode(request.prediction, add_special_tokens=False)
    except RequestError as error:
        raise RequestError(error.message, param="prediction") from None


def _prompt(request: GenerateRequest, engine: Engine) -> tuple[int, ...]:
    if request.messages is not None:
        prompt, field = engine.codec.encode_chat(request.messages), "messages"
    elif request.tokens is not None:
        prompt, field = request.tokens, "prompt"
    else:
        prompt, field = engine.codec.encode(request.text or ""), "prompt"
    if not prompt:
        raise RequestError("the prompt is empty; give at least one token", param=field)
    vocab_size = engine.card.vocab_size
    if (wrong := next((t for t in prompt if not 0 <= t < vocab_size), None)) is not None:
        raise RequestError(f"token id {wrong} is outside the vocabulary of {vocab_size}", param=field)
    longest = engine.card.max_model_len
    needs_room = 0 if request.max_tokens == 0 else 1
    if len(prompt) + needs_room > longest:
        raise RequestError(
            f"the prompt has {len(prompt)} tokens; this model's context is {longest} tokens with at least one to "
            "generate; shorten the prompt",
            param=field,
        )
    return prompt


def _max_tokens(request: GenerateRequest, prompt: int, longest: int) -> int:
    room = longest - prompt
    if request.max_tokens is None:
        return room
    if request.max_tokens > room:
        raise RequestError(
            f"max_tokens {request.max_tokens} and a prompt of {prompt} tokens exceed the context of {longest} tokens",
            param="max_tokens",
        )
    return request.max_tokens
