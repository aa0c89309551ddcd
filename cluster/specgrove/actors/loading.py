"""A pool's engine. Kept apart from identity.py, because the ingress must not load torch."""

from __future__ import annotations

import asyncio

from specgrove.config import Config, DraftConfig, PoolConfig
from specgrove.engine.loader import EngineOptions, load
from specgrove.engine.runner import Engine


async def load_engine(config: Config, pool: PoolConfig) -> Engine:
    """Load a pool's model in a thread, so that Serve can go on asking after the replica."""
    source = config.models[pool.model].source
    return await asyncio.to_thread(load, source, engine_options(config, pool))


def engine_options(config: Config, pool: PoolConfig) -> EngineOptions:
    """How the engine loads a pool's model."""
    model = config.models[pool.model]
    return EngineOptions(
        device=pool.torch_device,
        dtype=config.dtype(pool),
        threads=pool.cpu_threads,
        max_model_len=pool.max_model_len,
        kv_slots=pool.kv_slots,
        kv_bytes=pool.kv_bytes,
        revision=model.revision,
        trust_remote_code=model.trust_remote_code,
        quantization=pool.quantization,
        compile=pool.compile,
        exit=pool.exit if isinstance(pool, DraftConfig) else None,
    )
