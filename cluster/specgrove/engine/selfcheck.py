"""What a model must pass before it is served: refusals by its configuration, and a probe against its own forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from specgrove.core.tree import TokenTree
from specgrove.engine.batch import Segment
from specgrove.engine.hooks import NAME, HookedModel, ShapeCache
from specgrove.engine.kv_pool import KVPool, KVSequence
from specgrove.engine.kv_store import KVStore, LayerShape
from specgrove.engine.runner import Passes
from specgrove.errors import UnsupportedModel

_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.06, torch.float16: 0.02}
"""Largest root mean square difference of the probe's logits, relative to their standard deviation. A forgotten mask,
window or bias gives 0.1 to 1; rounding stays ten times below these bounds."""
_WINDOW = 9
"""Sliding windows are narrowed to this many tokens for the probe, so that a short text tests them."""
_LAYER_TYPES = {"full_attention", "sliding_attention"}
_BATCH_DEPENDENT_ROPE = {"dynamic", "longrope"}


def refusal(config: PreTrainedConfig) -> str | None:
    """Why the engine does not serve a model with this configuration, or None. The probe may still refuse it."""
    if config.is_encoder_decoder:
        return "it is an encoder-decoder model"
    if getattr(config, "quantization_config", None) is not None:
        return "its weights are quantized; use weights in float32, bfloat16 or float16"
    text = config.get_text_config()
    strange = sorted(set(getattr(text, "layer_types", None) or ()) - _LAYER_TYPES)
    if strange:
        return f"it has layers of type {', '.join(strange)}, whose state cannot be rolled back or is not covered"
    return None


def longest_context(config: PreTrainedConfig) -> int | None:
    """Tokens that the model can address, or None when its configuration does not say.

    Dynamic and long rope change the frequencies of all rows with the longest row of a pass, which would mix sessions:
    such models are served up to the length where the change begins.
    """
    text = config.get_text_config()
    length = getattr(text, "max_position_embeddings", None)
    for rope in _rope_settings(text):
        if rope.get("rope_type") in _BATCH_DEPENDENT_ROPE:
            original = rope.get("original_max_position_embeddings") or getattr(
                text, "original_max_position_embeddings", None
            )
            length = min(filter(None, (length, original)), default=None)
    return int(length) if length else None


def _rope_settings(text: PreTrainedConfig) -> list[dict[str, Any]]:
    rope = getattr(text, "rope_parameters", None) or {}
    return [rope, *(value for value in rope.values() if isinstance(value, dict))]


@torch.inference_mode()
def layer_shapes(model: PreTrainedModel) -> tuple[list[LayerShape], torch.dtype]:
    """Shapes and dtype of each layer's keys and values, from one pass over three tokens. Raises UnsupportedModel."""
    cache = ShapeCache()
    device = model.device
    tokens = torch.zeros(1, 3, dtype=torch.long, device=device)
    try:
        HookedModel(model)(tokens, torch.arange(3, device=device)[None], torch.tensor([2], device=device), cache)
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        cache.fault = cache.fault or f"it does not run with a cache of keys and values ({first_line(error)})"
    return cache.finish(), cache.dtype


def probe(model: PreTrainedModel, layers: Sequence[LayerShape], dtype: torch.dtype, vocab_size: int) -> float:
    """Run chunked prefill, two sessions and a tree through the hooks and through the model's own forward.

    Returns the relative difference of the logits. Raises UnsupportedModel when it is over the tolerance.
    """
    with _narrow_windows(model):
        hooked, expected = _probe_hooked(model, layers, dtype, vocab_size)
        plain = _plain(model, expected, vocab_size)
    if not bool(torch.isfinite(plain).all()):
        raise UnsupportedModel("its own forward pass gives values that are not numbers")
    error = float((hooked - plain).square().mean().sqrt() / plain.std())
    if not error <= _TOLERANCE[dtype]:
        raise UnsupportedModel(
            f"its logits through our attention differ from its own by {error:.2g} of their spread "
            f"(at most {_TOLERANCE[dtype]:g} for {str(dtype).removeprefix('torch.')})"
        )
    return error


def _probe_hooked(
    model: PreTrainedModel, layers: Sequence[LayerShape], dtype: torch.dtype, vocab_size: int
) -> tuple[Tensor, list[list[int]]]:
    """Logits [m, vocab_size] through the hooks, and the path of tokens that each row stands for."""
    pool = KVPool(KVStore(layers, 96, dtype, model.device))
    passes = Passes(HookedModel(model), pool, vocab_size=vocab_size, rows_end=96)
    ids = np.random.default_rng(7).integers(0, vocab_size, size=64).tolist()
    first, second, tree = ids[:23], ids[23:40], TokenTree(tuple(ids[40:45]), (-1, -1, 0, 0, 1))
    a, b = pool.open(first), pool.open(second)
    logits = [passes.forward([_prefill(a, first[:14], ())])]
    a.commit(range(14), first[:14])
    logits.append(passes.forward([_prefill(a, first[14:], (8,)), _prefill(b, second, (16,))]))
    paths = [first, second]
    a.commit(range(9), first[14:])
    b.commit(range(17), second)
    root = ids[45]
    segments = [_tree(a, root, tree), _prefill(b, ids[46:47], (0,))]
    logits.append(passes.forward(segments))
    paths.append([*first, root])
    paths += [[*first, root, *(tree.tokens[i] for i in tree.path(node))] for node in range(len(tree))]
    paths.append([*second, ids[46]])
    a.commit([0, 1, 4], [root, tree.tokens[0], tree.tokens[3]])
    logits.append(passes.forward([_prefill(a, ids[47:48], (0,))]))
    paths.append([*first, root, tree.tokens[0], tree.tokens[3], ids[47]])
    return torch.cat(logits), paths


def _prefill(sequence: KVSequence, tokens: Sequence[int], wanted: Sequence[int]) -> Segment:
    positions = range(sequence.length, sequence.length + len(tokens))
    sequence.reserve(positions)
    return Segment(sequence, tokens, positions, None, wanted)


def _tree(sequence: KVSequence, root: int, tree: TokenTree) -> Segment:
    base = sequence.length + 1
    positions = [base - 1, *tree.positions(base)]
    sequence.reserve(positions)
    mask = np.ones((len(positions), len(positions)), dtype=np.bool_)
    mask[0, 1:] = False
    mask[1:, 1:] = tree.mask()
    return Segment(sequence, [root, *tree.tokens], positions, mask, range(len(positions)))


@torch.inference_mode()
def _plain(model: PreTrainedModel, paths: Sequence[Sequence[int]], vocab_size: int) -> Tensor:
    """Logits [len(paths), vocab_size] float32 after each path, by the model's own attention and masks, in one pass.

    Shorter paths are padded behind their end, which causal attention does not see.
    """
    width = max(map(len, paths))
    sent = torch.tensor([[*path, *[0] * (width - len(path))] for path in paths], device=model.device)
    model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
    try:
        logits: Tensor = model(input_ids=sent, use_cache=False).logits[..., :vocab_size]
    finally:
        model.set_attn_implementation(NAME)
    rows = torch.arange(len(paths), device=model.device)
    return logits[rows, torch.tensor([len(path) - 1 for path in paths], device=model.device)].float()


@contextmanager
def _narrow_windows(model: PreTrainedModel) -> Iterator[None]:
    """Within, every sliding window is _WINDOW tokens, in configurations and modules."""
    owners: list[Any] = []
    for module in model.modules():
        owners += [module, getattr(module, "config", None)]
    widths: list[tuple[Any, int]] = []
    for owner in {id(o): o for o in owners if o is not None}.values():
        width = getattr(owner, "sliding_window", None)
        if isinstance(width, int) and not isinstance(width, bool):
            widths.append((owner, width))
            owner.sliding_window = min(width, _WINDOW)
    try:
        yield
    finally:
        for owner, width in widths:
            owner.sliding_window = width


def first_line(error: Exception) -> str:
    """The first line of an error, for a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0]
