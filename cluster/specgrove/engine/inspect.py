"""What a model's files say before any weight is read: may it be loaded, and which vocabulary does it have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig

from specgrove.core.cards import vocabulary_hash
from specgrove.engine import selfcheck
from specgrove.engine.tokenizer import TextCodec
from specgrove.engine.weights import locate, weight_files
from specgrove.errors import ConfigError, UnsupportedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A model's vocabulary as its card will have it, and where its files are."""

    directory: Path
    architecture: str
    vocab_size: int
    """Real ids, without padding."""
    vocab_hash: str


def inspect(model: str, *, revision: str | None = None, trust_remote_code: bool = False) -> Inspection:
    """Look at a bundled name, a local directory or a hub id (downloaded if needed).

    Raises ConfigError (one sentence that names what is missing) and UnsupportedModel (with the reason).
    """
    directory = locate(model, revision)
    weight_files(directory)
    config, codec = _read(directory, trust_remote_code=trust_remote_code)
    return Inspection(
        directory=directory,
        architecture=_names(config),
        vocab_size=codec.vocab_size,
        vocab_hash=vocabulary_hash(codec.pairs.items()),
    )


def codec(model: str, *, revision: str | None = None) -> TextCodec:
    """The tokenizer of a model, without its weights. Raises as inspect."""
    return _read(locate(model, revision), trust_remote_code=False)[1]


def _names(config: PreTrainedConfig) -> str:
    return ", ".join(config.architectures or [config.model_type])


def _read(directory: Path, *, trust_remote_code: bool) -> tuple[PreTrainedConfig, TextCodec]:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(directory, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"cannot read the configuration in {directory}: {selfcheck.first_line(error)}") from None
    if (reason := selfcheck.refusal(config)) is not None:
        raise UnsupportedModel(f"{_names(config)} cannot be served: {reason}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=trust_remote_code)
    except (ImportError, KeyError, OSError, ValueError) as error:
        raise ConfigError(f"cannot load the tokenizer in {directory}: {selfcheck.first_line(error)}") from None
    return config, TextCodec(tokenizer, rows=int(config.get_text_config().vocab_size))
