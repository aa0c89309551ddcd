"""Where a model lies and what its weights are: resolving names, and the digest of the weight files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from specgrove import models
from specgrove.errors import ConfigError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*(/[A-Za-z0-9][\w.\-]*)?")
_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
_READ = 1 << 22


def locate(model: str, revision: str | None) -> Path:
    """Directory of a bundled name, a local directory or a hub id (downloaded if needed).

    Raises ConfigError that says which of these `model` looks like and why it cannot be had.
    """
    bundled = models.bundled().get(model)
    if bundled is not None:
        return bundled
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(f"model directory {model} has no config.json")
        return path
    if path.is_file():
        raise ConfigError(f"model {model} is a file; give the directory with config.json and *.safetensors")
    if model.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(model):
        raise ConfigError(f"model directory {model} does not exist")
    return _download(model, revision)


def _download(model: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    known = ", ".join(models.bundled())
    what = f"model {model} is no bundled model ({known}) and no local directory, and the hub"
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_FILES))
    except LocalEntryNotFoundError:
        raise ConfigError(f"{what} cannot be reached and has no copy in the local cache") from None
    except (HfHubHTTPError, HFValidationError) as error:
        raise ConfigError(f"{what} refuses it: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise ConfigError(f"{what} cannot be reached: {error}") from None


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files, by name. Raises ConfigError when there are none."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ConfigError(f"model directory {directory} has no *.safetensors files")
    return files


def weights_digest(files: Sequence[Path]) -> str:
    """sha256 of the content of the weights file; of several, sha256 over their digests in order of their names.

    Each file's own sha256 is remembered by path, size and modification time in ~/.cache/specgrove, because reading
    gigabytes takes seconds.
    """
    digests = [_file_digest(file) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256(bytes.fromhex("".join(digests))).hexdigest()


def _file_digest(file: Path) -> str:
    stat = file.stat()
    key = hashlib.sha256(f"{file.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}".encode()).hexdigest()
    note = Path.home() / ".cache" / "specgrove" / "digests" / f"{key}.json"
    try:
        return str(json.loads(note.read_text())["sha256"])
    except (OSError, ValueError, KeyError):
        pass
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while piece := source.read(_READ):
            digest.update(piece)
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        draft = note.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"file": str(file), "sha256": digest.hexdigest()}))
        draft.replace(note)
    except OSError:
        pass  # a read-only home costs time at the next start, nothing else
    return digest.hexdigest()
