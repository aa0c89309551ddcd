"""From a name to an engine: find the files, load the weights, refuse what would be wrong, size the pool."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as hf_logging

from specgrove.core.cards import ModelCard, vocabulary_hash
from specgrove.core.sampling import SamplingFields
from specgrove.engine import selfcheck
from specgrove.engine.budget import Budget, decide
from specgrove.engine.compiled import SIZES, compile_layers, size_for
from specgrove.engine.hooks import NAME, OWN_ATTENTION, HookedModel
from specgrove.engine.kv_pool import KVPool
from specgrove.engine.kv_store import KVStore
from specgrove.engine.linear import widen
from specgrove.engine.quantize import Quantization, quantize
from specgrove.engine.runner import Engine, Passes
from specgrove.engine.tokenizer import TextCodec
from specgrove.engine.weights import locate, weight_files, weights_digest
from specgrove.errors import ConfigError, UnsupportedModel

log = logging.getLogger(__name__)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How to load and run one model."""

    device: str = "cpu"
    dtype: str = "auto"
    """auto (that of the weights), float32, bfloat16 or float16."""
    threads: int | None = None
    """CPU threads of this process; None leaves torch's choice."""
    max_model_len: int | None = None
    """Longest session in tokens; None: what the model and the KV budget allow."""
    kv_slots: int | None = None
    """KV budget in tokens; None: see budget.py."""
    kv_bytes: int | None = None
    """KV budget in bytes; at most one of kv_slots and kv_bytes."""
    max_prefill_tokens: int = 512
    """Longest prompt piece in one pass."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    trust_remote_code: bool = False
    """Run model code that comes with the weights."""
    exit: int | None = None
    """Depth at which a sorted model stops, one of the exits on its card; None: the full depth."""
    quantization: Quantization | None = None
    """Fewer bits for the weights of a bfloat16 model's linear layers; None: as they are."""
    compile: bool = False
    """Compile the layers for a few sizes of pass; the engine is then warm when it is returned."""


def load(model: str, options: EngineOptions) -> Engine:
    """Load a bundled name, a local directory or a hub id.

    Raises ConfigError (one sentence that names what is missing) and UnsupportedModel (with the reason).
    """
    device = _device(options.device)
    dtype = _dtype(options.dtype)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    directory = locate(model, options.revision)
    files = weight_files(directory)
    with ThreadPoolExecutor(1) as background:
        digest = background.submit(weights_digest, files)  # reads while the weights load
        network = _network(directory, dtype, options)
        network.to(device)  # type: ignore[arg-type]  # transformers wraps `to` without its types
        parameters = sum(p.numel() for p in network.parameters())
        if options.quantization is not None:
            quantize(network, options.quantization)
        else:
            widen(network)
        return _assemble(directory, network, options, digest.result(), parameters)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device {name!r} is not known to torch; use cpu or cuda", param="device") from None
    if device.type not in {"cpu", "cuda"}:
        raise ConfigError(f"device {name!r} is not supported; use cpu or cuda", param="device")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {name!r} is not there; torch sees {torch.cuda.device_count()}", param="device")
    return device


def _dtype(name: str) -> torch.dtype | str:
    if name == "auto":
        return name
    if name not in _DTYPES:
        raise ConfigError(f"dtype {name!r} is not one of auto, {', '.join(_DTYPES)}", param="dtype")
    return _DTYPES[name]


def _network(directory: Path, dtype: torch.dtype | str, options: EngineOptions) -> PreTrainedModel:
    """The model in evaluation mode, with our attention. Raises UnsupportedModel, ConfigError."""
    hf_logging.disable_progress_bar()
    trust = options.trust_remote_code
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(directory, trust_remote_code=trust)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"cannot read the configuration in {directory}: {selfcheck.first_line(error)}") from None
    reason = selfcheck.refusal(config)
    if reason is not None:
        raise UnsupportedModel(_refused(config, reason))
    if options.exit is not None:
        _cut(config, directory, options.exit)
    try:
        network: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            directory, config=config, dtype=dtype, attn_implementation=NAME, trust_remote_code=trust
        )
    except KeyError:  # the model picks its attention from a list of its own
        raise UnsupportedModel(_refused(config, OWN_ATTENTION)) from None
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise UnsupportedModel(_refused(config, selfcheck.first_line(error))) from None
    network.eval().requires_grad_(False)
    return network


def _cut(config: PreTrainedConfig, directory: Path, depth: int) -> None:
    """Let only the first `depth` layers be made and loaded. Norm and head are the model's own (papers: S2D)."""
    exits = tuple(_read_json(directory / "card.json").get("exits", ()))
    if depth not in exits:
        names = ", ".join(map(str, exits)) or "none"
        raise ConfigError(f"{directory.name} has no exit {depth}; exits on its card: {names}", param="exit")
    text = config.get_text_config()
    text.num_hidden_layers = depth
    if getattr(text, "layer_types", None) is not None:
        text.layer_types = text.layer_types[:depth]


def _refused(config: PreTrainedConfig, reason: str) -> str:
    names = ", ".join(config.architectures or [config.model_type])
    return f"{names} cannot be served: {reason}"


def _assemble(
    directory: Path, network: PreTrainedModel, options: EngineOptions, digest: str, parameters: int
) -> Engine:
    config = network.config
    vocab_rows = int(network.get_output_embeddings().weight.shape[0])
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=options.trust_remote_code)
    except (ImportError, KeyError, OSError, ValueError) as error:
        raise ConfigError(f"cannot load the tokenizer in {directory}: {selfcheck.first_line(error)}") from None
    codec = TextCodec(tokenizer, rows=vocab_rows)
    try:
        layers, kv_dtype = selfcheck.layer_shapes(network)
        difference = selfcheck.probe(network, layers, kv_dtype, codec.vocab_size)
    except UnsupportedModel as error:
        raise UnsupportedModel(_refused(config, error.message)) from None
    log.info("%s: attention check passed, relative difference %.1e", directory.name, difference)
    budget = decide(
        layers,
        kv_dtype,
        network.device,
        context=selfcheck.longest_context(config),
        asked=Budget(options.kv_slots, options.kv_bytes, options.max_model_len),
    )
    if options.compile:
        compile_layers(network)
    passes = Passes(
        HookedModel(network, size_for if options.compile else int),
        KVPool(KVStore(layers, budget.slots, kv_dtype, network.device)),
        vocab_size=codec.vocab_size,
        unused_ids=codec.unused_ids,
        rows_end=budget.context,
    )
    if options.compile:
        _warm(passes, budget.context)
    generation = _read_json(directory / "generation_config.json")
    return Engine(
        passes=passes,
        card=_card(
            directory,
            network,
            codec,
            parameters=parameters,
            weights_digest=digest,
            dtype=options.quantization or str(network.dtype).removeprefix("torch."),
            max_model_len=budget.max_model_len,
        ),
        codec=codec,
        defaults=_defaults(generation),
        eos_token_ids=_eos(config.eos_token_id, generation.get("eos_token_id"), tokenizer.eos_token_id),
        vocab_rows=vocab_rows,
        max_prefill_tokens=options.max_prefill_tokens,
    )


def _warm(passes: Passes, context: int) -> None:
    """Run a pass of every size that is compiled for and fits."""
    for size in SIZES:
        if size <= min(context, passes.pool.stats().free):
            sequence = passes.pool.open(())
            try:
                passes.prefill(sequence, [0] * size, size)
            finally:
                sequence.release()


def _card(directory: Path, network: PreTrainedModel, codec: TextCodec, **measured: Any) -> ModelCard:
    """From the model, what its own card tells, and what was found while loading it."""
    text = network.config.get_text_config()
    told = _read_json(directory / "card.json")
    layers = int(text.num_hidden_layers)
    exits = tuple(depth for depth in told.get("exits", ()) if depth <= layers)
    cut = len(exits) < len(told.get("exits", ()))
    return ModelCard(
        name=str(told.get("name", directory.resolve().name)),
        architecture=str(network.config.model_type),
        layers=layers,
        hidden_size=int(text.hidden_size),
        vocab_size=codec.vocab_size,
        vocab_hash=vocabulary_hash(codec.pairs.items()),
        exits=exits,
        trained_on=str(told.get("trained_on", "")),
        scores={} if cut else dict(told.get("scores", {})),  # they are the whole model's
        **measured,
    )


def _defaults(generation: dict[str, Any]) -> SamplingFields:
    """Sampling fields that the file names, whatever its do_sample says; everything else stays unset.

    transformers' own defaults (top_k = 50 and so on) are not in the file and don't count.
    """
    return SamplingFields(**{k: generation[k] for k in _DEFAULTS if generation.get(k) is not None})


def _eos(*sources: int | Iterable[int] | None) -> tuple[int, ...]:
    found: set[int] = set()
    for source in sources:
        if isinstance(source, int):
            found.add(source)
        elif source is not None:
            found.update(source)
    return tuple(sorted(found))


def _read_json(file: Path) -> dict[str, Any]:
    """The object in a file, or {} when there is no such file. Raises ConfigError for a broken one."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text())
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file} must hold an object")
    return value
