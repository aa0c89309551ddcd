"""Join the texts of several replicas into one valid exposition (Prometheus' text format 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class _Block:
    """One family: its HELP and TYPE and its samples by series, in the order they came."""

    name: str
    help: str = ""
    type: str = "untyped"
    samples: dict[str, str] = field(default_factory=dict)


def merge(expositions: Sequence[str]) -> str:
    """One text with one HELP and TYPE per family and the series of all.

    The label `replica` keeps series apart. The same series twice (one replica asked twice) keeps the last value. During
    a rolling upgrade two replicas may disagree on a family's type: the first type wins, and a comment names what was
    left out.
    """
    merged: dict[str, _Block] = {}
    notes: list[str] = []
    for text in expositions:
        for block in _blocks(text):
            held = merged.setdefault(block.name, _Block(block.name, block.help, block.type))
            if held.type != block.type:
                notes.append(f"# left out: {block.name} of type {block.type}, because another replica has {held.type}")
                continue
            held.samples.update(block.samples)
    lines = [line for block in merged.values() for line in _lines(block)]
    return "".join(f"{line}\n" for line in [*lines, *notes])


def _lines(block: _Block) -> Iterator[str]:
    if block.help:
        yield f"# HELP {block.name} {block.help}"
    yield f"# TYPE {block.name} {block.type}"
    for series, value in block.samples.items():
        yield f"{series} {value}"


def _blocks(text: str) -> Iterator[_Block]:
    """The families of one text. A sample belongs to the family whose HELP or TYPE stands above it."""
    block: _Block | None = None
    for line in text.split("\n"):
        if line.startswith(("# HELP ", "# TYPE ")):
            _, keyword, name, *rest = line.split(" ", 3)
            if block is None or block.name != name:
                if block is not None:
                    yield block
                block = _Block(name)
            if keyword == "HELP":
                block.help = rest[0] if rest else ""
            elif rest:
                block.type = rest[0]
        elif line and not line.startswith("#"):
            series, value = _sample(line)
            name = series.partition("{")[0]
            if block is None or not name.startswith(block.name):
                if block is not None:
                    yield block
                block = _Block(name)
            block.samples[series] = value
    if block is not None:
        yield block


def _sample(line: str) -> tuple[str, str]:
    """(series, value) of a sample line; a label value may hold spaces and braces, a number may not."""
    end = line.rfind("}") + 1
    if end:
        return line[:end], line[end:].strip()
    series, _, value = line.partition(" ")
    return series, value.strip()
