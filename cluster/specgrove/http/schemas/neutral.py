"""Fields of OpenAI's and vLLM's requests that we do not support, and the values that ask for nothing.

null always passes. Any other value passes only if leaving the field out would give the same reply; everything else is
refused by name, because a field that is read and ignored is a promise broken in silence.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Neutral: TypeAlias = dict[str, tuple[Any, ...]]
"""Field to the values that ask for nothing (besides null)."""

_SHARED: Neutral = {
    # OpenAI
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    # vLLM
    "add_special_tokens": (True,),
    "bad_words": ([],),
    "cache_salt": (),
    "detokenize": (True,),
    "ec_transfer_params": (),
    "include_stop_str_in_output": (False,),
    "guided_choice": (),
    "guided_decoding_backend": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_whitespace_pattern": (),
    "kv_transfer_params": (),
    "length_penalty": (1, 1.0),
    "logits_processors": ([],),
    "logprob_token_ids": (),
    "priority": (0,),
    "prompt_logprobs": (),
    "repetition_detection": (),
    "return_mm_kwargs": (True, False),
    "return_token_ids": (False,),
    "return_token_offsets": (False,),
    "return_tokens_as_token_ids": (False,),
    "routed_experts_prompt_start": (0,),
    "session_id": (),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),  # matters only when special tokens are shown
    "stream_interval": (1,),
    "structured_outputs": (),
    "thinking_token_budget": (-1,),
    "truncate_prompt_tokens": (),
    "truncation_side": (),
    "use_beam_search": (False,),
    "vllm_xargs": ({},),
    "watermarking": (False,),
}

CHAT: Neutral = _SHARED | {
    # OpenAI
    "audio": (),
    "function_call": ("none", "auto"),  # nothing to call: `functions` must be empty too
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prompt_cache_key": ("",),
    "prompt_cache_options": (),
    "prompt_cache_retention": ("in_memory", "in-memory"),
    "reasoning_effort": ("none",),
    "tool_choice": ("none", "auto"),  # nothing to choose from: `tools` must be empty too
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
    # vLLM
    "add_generation_prompt": (True,),
    "add_special_tokens": (False,),
    "best_of": (1,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "include_reasoning": (True,),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "return_prompt_text": (False,),
}

COMPLETIONS: Neutral = _SHARED | {
    "prompt_embeds": (),
    "suffix": ("",),
}

MESSAGE: Neutral = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "reasoning": ("",),
    "reasoning_content": ("",),
    "refusal": (),
    "tool_call_id": (),
    "tool_calls": ([],),
}

STREAM_OPTIONS: Neutral = {"include_obfuscation": (False,)}

NOTHING: Neutral = {}


def asks_for_nothing(neutral: Neutral, name: str, value: Any) -> bool:
    """Whether a field of the table may be dropped. Types count: 1 is not true, though Python says they are equal."""
    return value is None or any(type(value) is type(v) and value == v for v in neutral[name])


def hint(neutral: Neutral, name: str) -> str:
    """What to do about a field of the table that asks for something."""
    allowed = [_json(v) for v in neutral[name] if type(v) is not float]
    return "leave it out" + (f" or send {' or '.join(allowed)}" if allowed else "")


def _json(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value).replace("'", '"')
