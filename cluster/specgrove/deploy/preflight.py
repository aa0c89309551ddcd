"""What can be known before anything starts: models that are not there, and drafts that fit no target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specgrove.config import Config, ModelConfig
from specgrove.errors import ConfigError
from specgrove.models import bundled

if TYPE_CHECKING:
    from specgrove.engine.inspect import Inspection


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A draft pool and a target pool that it may serve as far as the configuration says."""

    draft: str
    target: str
    equal: bool
    """Same real tokens; padding does not count."""


def check_all(config: Config) -> list[Pair]:
    """Look at every model, on this machine. Raises ConfigError or UnsupportedModel in one sentence."""
    return _check(config, {name: _inspect(name, model) for name, model in config.models.items()})


def check_visible(config: Config) -> list[Pair]:
    """Look at the models whose files are on this machine; the others may be on the nodes that will load them."""
    seen = {name: _inspect(name, model) for name, model in config.models.items() if _here(model)}
    return _check(config, seen)


def only_bundled(config: Config) -> bool:
    """Nothing but models that come with the package: our own tests have looked at them."""
    return all(model.source in bundled() for model in config.models.values())


def _here(model: ModelConfig) -> bool:
    return model.source in bundled() or Path(model.source).expanduser().is_dir()


def _inspect(name: str, model: ModelConfig) -> Inspection:
    from specgrove.engine.inspect import inspect  # imports torch, which the bundled family does not need here

    try:
        return inspect(model.source, revision=model.revision, trust_remote_code=model.trust_remote_code)
    except ConfigError as error:
        raise type(error)(f"config models.{name}: {error.message}", param=f"models.{name}") from None


def _check(config: Config, seen: Mapping[str, Inspection]) -> list[Pair]:
    """A pair that the configuration names must match; a draft pool that matches no target is a mistake too."""
    pairs = []
    for target, pool in config.targets.items():
        for draft in config.draft_pools(target):
            left, right = seen.get(config.drafts[draft].model), seen.get(pool.model)
            if left is None or right is None:
                continue
            pair = Pair(draft=draft, target=target, equal=left.vocab_hash == right.vocab_hash)
            if not pair.equal and config.named_pair(target, draft):
                raise _unequal(config, target, draft, left, right)
            pairs.append(pair)
    for draft in config.drafts:
        mine = [pair for pair in pairs if pair.draft == draft]
        if mine and not any(pair.equal for pair in mine):
            target = mine[0].target
            left, right = seen[config.drafts[draft].model], seen[config.targets[target].model]
            raise _unequal(config, target, draft, left, right)
    return pairs


def _unequal(config: Config, target: str, draft: str, left: Inspection, right: Inspection) -> ConfigError:
    return ConfigError(
        f"config drafts.{draft}: draft {config.drafts[draft].model} ({left.vocab_size} tokens) and target "
        f"{config.targets[target].model} ({right.vocab_size} tokens) use different vocabularies; "
        "pick a draft with the target's tokenizer",
        param=f"drafts.{draft}",
    )
