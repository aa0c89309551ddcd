"""Compiles and loads linear.c and linear4.c, the product of a few rows with bfloat16, 8-bit or 4-bit weights.

It is built on first use with the C compiler at hand and kept in ~/.cache/specgrove, under a name that holds the digest
of the source and of the flags. The flags name the instructions, so every machine that shares the directory may load it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from specgrove.errors import ConfigError

log = logging.getLogger(__name__)

Product = Callable[[int, int, int | None, int | None, int, int, int, int, int, int], None]
"""Addresses of x, weight, scale or None, bias or None, y, scratch; then rows, in, out, threads (see linear.c)."""
Numbers = Literal["bfloat16", "int8", "int4"]
"""What weights are stored as."""

PANEL = 32
"""Rows that share one reading of the weights; as in linear.h, and what the scratch must hold."""
X86 = frozenset({"x86_64", "AMD64"})
"""What platforms call 64-bit x86."""
_FLAGS = ("-O3", "-mfma", "-std=gnu11", "-fPIC", "-shared")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl")


@dataclass(frozen=True, slots=True)
class _Build:
    """How one product is built, and which instructions it needs, in torch's words."""

    source: Path
    flags: tuple[str, ...]
    needs: frozenset[str]


_BUILDS: dict[Numbers, _Build] = {
    "bfloat16": _Build(Path(__file__).with_name("linear.c"), ("-mavx2",), frozenset({"AVX2", "AVX512"})),
    "int8": _Build(Path(__file__).with_name("linear.c"), ("-mavx2", "-DINT8"), frozenset({"AVX2", "AVX512"})),
    "int4": _Build(Path(__file__).with_name("linear4.c"), _AVX512, frozenset({"AVX512"})),
}
_COMPILERS = ("cc", "gcc", "clang")
_PATIENCE_S = 60.0


def scratch_numbers(in_features: int) -> int:
    """Float32 numbers that a product with rows of this length needs as scratch."""
    return PANEL * (in_features + 15) // 16 * 16


@functools.cache
def product(numbers: Numbers = "bfloat16") -> Product | None:
    """The compiled product, or None (with one line in the log) where it cannot be had."""
    if platform.machine() not in X86:
        return None
    if torch.backends.cpu.get_cpu_capability() not in _BUILDS[numbers].needs:
        return None
    try:
        return _load(numbers)
    except (ConfigError, OSError, subprocess.SubprocessError) as error:
        log.info("linear layers stay with torch, several times slower for small batches: %s", error)
        return None


def _load(numbers: Numbers) -> Product:
    """Raises ConfigError, OSError (cannot be built here, or lacks torch's OpenMP) and SubprocessError."""
    build = _BUILDS[numbers]
    flags = (*_FLAGS, *build.flags)
    text = build.source.read_bytes() + build.source.with_name("linear.h").read_bytes()
    key = hashlib.sha256(text + " ".join(flags).encode()).hexdigest()
    kept = Path.home() / ".cache" / "specgrove" / "kernels" / f"linear-{numbers}-{key[:32]}.so"
    if kept.is_file():
        return _open(kept)
    with tempfile.TemporaryDirectory() as place:
        built = Path(place) / kept.name
        _compile(build.source, built, flags)
        loaded = _open(built)
        _keep(built, kept)
    return loaded


def _open(library: Path) -> Product:
    call = ctypes.CDLL(str(library)).specgrove_linear
    call.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_long] * 3 + [ctypes.c_int]
    call.restype = None
    return call


def _compile(source: Path, library: Path, flags: Sequence[str]) -> None:
    wanted = os.environ.get("CC")  # the name by which every build tool is told of a compiler
    command = shlex.split(wanted) if wanted else [found for name in _COMPILERS if (found := shutil.which(name))][:1]
    if not command:
        raise ConfigError(f"no C compiler found ({', '.join(_COMPILERS)} or CC)")
    done = subprocess.run(
        [*command, *flags, "-o", str(library), str(source)],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.splitlines() or [f"exit status {done.returncode}"])[0]
        raise ConfigError(f"{command[0]} cannot compile {source.name}: {reason}")


def _keep(built: Path, kept: Path) -> None:
    """Copy beside the final name, then rename: replicas that start together never see half a file."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(f".{os.getpid()}")
        shutil.copyfile(built, draft)
        draft.replace(kept)
    except OSError:
        pass  # a read-only home costs a second at the next start, nothing else
