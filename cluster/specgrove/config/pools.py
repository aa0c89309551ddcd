"""Models, and the pools of replicas that serve or draft for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from specgrove.config.strict import Strict, refuse

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Count = Annotated[int, Field(ge=1)]


PLANNED_WIDTH, PLANNED_DEPTH, PLANNED_NODES = 4, 12, 64
"""What planned trees may have at most, unless the configuration says otherwise."""


def _strings(value: Any) -> Any:
    """One string stands for a list of one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _sequence(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Strings = Annotated[tuple[str, ...], BeforeValidator(_strings)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_sequence)]


def nodes_of(branching: Sequence[int]) -> int:
    """Nodes of a tree with so many children per node at each depth."""
    total, level = 0, 1
    for children in branching:
        level *= children
        total += level
    return total


class ModelConfig(Strict):
    """One model, named once; pools refer to it by that name."""

    source: str
    """Bundled name (`grove-large`), local directory or hub id."""
    revision: str | None = None
    """Hub revision; None: the default branch."""
    dtype: Dtype = "auto"
    """Number format of weights and cache; `auto`: as the weights are stored."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""


class ResourceConfig(Strict):
    """What Ray must set aside on a node for one replica. Distinct custom resources put pools on distinct nodes."""

    num_cpus: Annotated[float, Field(ge=0)] = 1.0
    """Logical CPUs; bookkeeping of Ray's, not a limit (see `threads`)."""
    num_gpus: Annotated[float, Field(ge=0)] | None = None
    """None: one for a pool whose device is cuda, none otherwise."""
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Custom resources that a node must have, by name."""


OF_DRAFTS = {"model", "draft_pool", "max_nodes", "draft_ahead", "max_tree_wait_ms", "allow_contrary"}
"""Keys of a SpeculativeConfig that say how drafts are asked."""


class SpeculativeConfig(Strict):
    """How a target pool's sessions are speculated for, in vLLM's keys where it has one."""

    refused: ClassVar[Mapping[str, str]] = {
        "draft_tensor_parallel_size": "a draft replica is one device; remove it",
        "disable_by_batch_size": "remove it: method planned finds from measurements when drafting pays",
        "quantization": "set quantization of the draft pool instead",
        "max_model_len": "set max_model_len of the draft pool instead",
        "revision": "set the revision under models instead",
    }

    method: Literal["planned", "tree", "chain", "draft_model", "ngram"] | None = None
    """`planned`: size and depth of every tree, or plain decoding, by measured goodput. `tree` and `chain` (vLLM's
    `draft_model` is another name for it): always the same shape. `ngram`: no draft, only what followed the last tokens
    earlier in the text. None: `chain` when num_speculative_tokens is set, `tree` when branching is, else `planned`."""
    model: str | None = None
    """Model that must do the drafting: a name under `models` that some draft pool has loaded."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=64)] | None = None
    """Length of the chain, or of what ngram guesses."""
    branching: Counts | None = None
    """Children per node at each depth of the tree."""
    max_nodes: Annotated[int, Field(ge=1, le=512)] | None = None
    """Most nodes of one tree; None: as many as the branching makes, and 64 where it is planned."""
    max_depth: Annotated[int, Field(ge=1, le=64)] | None = None
    """Deepest planned tree; None: 12."""
    draft_ahead: Annotated[int, Field(ge=0, le=16)] | None = None
    """Levels that a draft grows on below its best leaves while the tree is verified. None: some, where drafts do not
    share their cores with the target, none otherwise."""
    prompt_lookup: bool | None = None
    """Guess also from the text itself, on the target, and join that to the draft's trees. None: where it is planned."""
    prompt_lookup_min: Annotated[int, Field(ge=1, le=16)] = 2
    """Fewest tokens that must occur again for a lookup."""
    prompt_lookup_max: Annotated[int, Field(ge=1, le=16)] = 4
    """Most tokens that are looked up."""
    allow_contrary: bool = False
    """Let requests ask for `method: contrary`, a draft that is wrong on purpose. For measuring alone: what is learned
    of it counts for all requests."""
    max_tree_wait_ms: Annotated[float, Field(gt=0)] | None = None
    """Longest time that a session waits for its tree before it steps plainly. None: what its draft took lately, and one
    plain step (docs/adr/0001). Longer waits carry more trees on a machine that is busy with other work."""
    draft_pool: Strings = ()
    """Draft pools that may serve this target; empty: every pool with the same vocabulary."""

    @field_validator("method", mode="before")
    @classmethod
    def _known_method(cls, method: Any) -> Any:
        if method == "[ngram]":
            return "ngram"
        if method not in (None, "planned", "tree", "chain", "draft_model", "ngram"):
            raise refuse("", f"{method!r} is not supported; use planned, tree, chain or ngram")
        return method

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        kind = self.kind
        if kind != "tree" and self.branching is not None:
            raise refuse("branching", f"{kind} has no branching; remove it or set method: tree")
        if kind in ("tree", "planned") and self.num_speculative_tokens is not None:
            limits = "branching and max_nodes" if kind == "tree" else "max_depth and max_nodes"
            raise refuse("num_speculative_tokens", f"sets the length of a chain; for {kind} set {limits}")
        if kind != "planned" and self.max_depth is not None:
            raise refuse("max_depth", f"limits planned trees; {kind} says its depth by itself")
        if kind == "ngram" and (self.model_fields_set & OF_DRAFTS or self.prompt_lookup is False):
            raise refuse("method", "ngram guesses from the text alone; remove keys of drafts and prompt_lookup")
        if not self.looks_up and (unread := self.model_fields_set & {"prompt_lookup_min", "prompt_lookup_max"}):
            raise refuse(min(unread), f"{kind} looks nothing up; remove it or set prompt_lookup: true")
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise refuse("prompt_lookup_min", f"is over prompt_lookup_max, {self.prompt_lookup_max}")
        if self.branching is not None and not 1 <= len(self.branching) <= 64:
            raise refuse("branching", "needs 1 to 64 depths")
        return self

    @property
    def kind(self) -> Literal["planned", "tree", "chain", "ngram"]:
        """The method, with defaults filled in."""
        if self.method is not None:
            return "chain" if self.method == "draft_model" else self.method
        if self.num_speculative_tokens is not None:
            return "chain"
        return "tree" if self.branching is not None else "planned"

    @property
    def looks_up(self) -> bool:
        """Whether targets guess from the text itself."""
        return self.kind in ("planned", "ngram") if self.prompt_lookup is None else self.prompt_lookup

    @property
    def shape(self) -> tuple[int, ...]:
        """Most children per node at each depth of a draft's tree; empty where no draft is asked."""
        match self.kind:
            case "chain":
                return (1,) * (self.num_speculative_tokens or 4)
            case "tree":
                return self.branching or (3, 1, 1, 1)
            case "planned":
                return (PLANNED_WIDTH,) * (self.max_depth or PLANNED_DEPTH)
        return ()

    @property
    def nodes(self) -> int:
        """Most nodes of one tree."""
        return min(nodes_of(self.shape), self.max_nodes or PLANNED_NODES)


class PoolConfig(Strict):
    """What target and draft pools have in common."""

    refused: ClassVar[Mapping[str, str]] = {
        "pipeline_parallel_size": "a replica is one device; remove it",
        "data_parallel_size": "set replicas instead",
        "num_replicas": "set replicas instead",
        "gpu_memory_utilization": "set the KV budget with kv_slots or kv_bytes instead",
        "autoscaling_config": "scaling by load is not supported yet; set replicas",
        "revision": "set it under models instead",
        "num_cpus": "set it under resources",
        "num_gpus": "set it under resources",
    }

    model: str
    """Name under `models`."""
    replicas: Count = 1
    """Replicas, each with the whole model."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    """auto, cpu or cuda; auto: cuda for a replica that was given a GPU, else cpu."""
    dtype: Dtype | None = None
    """None: the model's."""
    quantization: Literal["int8", "int4"] | None = None
    """Weights of linear layers in 8 or 4 bits, rounded while loading: a half or a quarter of the memory to read for
    every token. The output is then that of the rounded model. Needs bfloat16 for the rest. None: as they are."""
    compile: bool = False
    """Compile the layers with torch.compile for a few sizes of pass while the replica starts, which takes minutes."""
    threads: Count | None = None
    """CPU threads of one replica's forward passes; None: as many as num_cpus, at least one."""
    kv_slots: Count | None = None
    """KV budget in tokens; None: derived from memory and context length."""
    kv_bytes: Count | None = None
    """KV budget in bytes, instead of kv_slots."""
    max_model_len: Count | None = None
    """Longest session in tokens; None: what the model's own configuration says."""
    max_surge_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """While a new configuration rolls out: how many replacements may start before old replicas stop, in percent of
    `replicas`. 0 needs no spare room; a pool of one replica is then away until its replacement has loaded."""
    resources: ResourceConfig = ResourceConfig()
    """What Ray sets aside for each replica."""
    tensor_parallel_size: int = 1
    """1: a replica is one device."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.tensor_parallel_size != 1:
            raise refuse("tensor_parallel_size", "only 1 is supported, a replica is one device; pick a smaller model")
        if self.kv_slots is not None and self.kv_bytes is not None:
            raise refuse("kv_bytes", "set kv_slots or kv_bytes, not both")
        return self

    @property
    def gpus(self) -> float:
        """GPUs of one replica."""
        if self.resources.num_gpus is not None:
            return self.resources.num_gpus
        return 1.0 if self.device.startswith("cuda") else 0.0

    @property
    def cpu_threads(self) -> int:
        """Threads of one replica's forward passes."""
        return self.threads or max(1, int(self.resources.num_cpus))

    @property
    def torch_device(self) -> str:
        """The device name for torch."""
        if self.device == "auto":
            return "cuda" if self.gpus else "cpu"
        return self.device


class TargetConfig(PoolConfig):
    """A pool of target replicas: they own sessions and answer requests."""

    served_model_name: Strings = ()
    """Names under which clients ask for it; empty: the model's name."""
    max_num_seqs: Count = 64
    """Most choices decoded together on one replica; more wait."""
    max_num_batched_tokens: Count = 512
    """Most tokens of one step: prefill chunks, trees and single tokens together."""
    speculative_config: SpeculativeConfig | None = SpeculativeConfig()
    """How to draft for it; null: plain decoding."""

    @property
    def served_names(self) -> tuple[str, ...]:
        """Names under which clients ask for it."""
        return self.served_model_name or (self.model,)


class DraftConfig(PoolConfig):
    """A pool of draft replicas: each guesses ahead for all targets that it may serve."""

    targets: Strings = ()
    """Target pools it may serve; empty: all with the same vocabulary."""
    exit: Count | None = None
    """Depth at which a sorted model stops drafting, one of the exits on its card; None: the full depth."""
    max_num_batched_tokens: Count = 512
    """Most tokens of one draft forward pass; longer prompts are computed in chunks."""
    added_rtt_ms: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Network round trip to the targets that is added on purpose, for measurements."""


POOL_NAME = re.compile(r"^[a-z0-9]([a-z0-9_-]{0,40}[a-z0-9])?$")
"""Pool names become deployment names (`target-<pool>`)."""
