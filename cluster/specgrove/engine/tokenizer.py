"""Text and tokens: the raw bytes of every token, encoding, chat templates and incremental decoding.

Decoding is defined here by bytes: the text of tokens is their bytes joined, decoded as UTF-8 with U+FFFD for what is
broken. It equals the tokenizer's own decode, except that a broken run of byte-fallback tokens keeps its valid
characters here.
"""

from __future__ import annotations

import codecs
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from specgrove.core.request import ChatMessage
from specgrove.errors import RequestError


def _byte_alphabet() -> dict[str, int]:
    """The printable character that byte-level BPE (GPT-2) uses for each byte: itself where printable, else 256 + k."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in printable}
    table |= {chr(256 + k): b for k, b in enumerate(b for b in range(256) if b not in printable)}
    return table


_ALPHABET = _byte_alphabet()


def _decoder_steps(tokenizer: PreTrainedTokenizerBase) -> list[Mapping[str, Any]]:
    """The steps of the tokenizer's decoder as JSON; empty when it has none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = json.loads(backend.to_str())["decoder"] if backend is not None else None
    if decoder is None:
        return []
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]


def _byte_level(piece: str) -> bytes:
    if all(c in _ALPHABET for c in piece):
        return bytes(_ALPHABET[c] for c in piece)
    return piece.encode()


def _sentencepiece(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("▁", " ").encode()


def _ids(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Piece of every real id, added tokens included."""
    pieces = {i: piece for piece, i in tokenizer.get_vocab().items()}
    return pieces | {i: str(added.content) for i, added in tokenizer.added_tokens_decoder.items()}


def vocabulary(tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[int, bytes]]:
    """(id, raw bytes) of the real ids and the special ids, in id order. Padding rows of the model are not tokens.

    Byte-level BPE is decoded to bytes; in sentencepiece vocabularies U+2581 is a space and <0xNN> a byte. Tokens of
    other kinds give the text that they add behind another token.
    """
    kinds = {step["type"] for step in _decoder_steps(tokenizer)}
    added = set(tokenizer.added_tokens_decoder)
    for i, piece in sorted(_ids(tokenizer).items()):
        if "ByteLevel" in kinds:
            yield i, _byte_level(piece)
        elif i in added:
            yield i, piece.encode()
        elif kinds & {"Metaspace", "ByteFallback", "Replace"}:
            yield i, _sentencepiece(piece)
        else:
            once = str(tokenizer.decode([i], clean_up_tokenization_spaces=False))
            twice = str(tokenizer.decode([i, i], clean_up_tokenization_spaces=False))
            yield i, twice[len(once) :].encode()


def _drops_first_space(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Does decoding drop one space at the start of a text?"""
    steps = _decoder_steps(tokenizer)
    if not steps:
        return True  # pieces are joined by spaces
    for step in steps:
        if step["type"] == "Strip" and step["content"] == " " and step["start"]:
            return True
        if step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never":
            return True
    return steps[-1]["type"] in {"WordPiece", "BPEDecoder", "CTC"}


class TextCodec:
    """Encodes and decodes for one model. Safe to use from several threads."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, rows: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        pairs = {i: raw for i, raw in vocabulary(tokenizer) if rows is None or i < rows}
        self.pairs: Mapping[int, bytes] = pairs
        """Raw bytes of each real id; ids that the model has no row for are left out."""
        self.vocab_size = max(pairs, default=-1) + 1
        """One more than the largest real id."""
        self._special = frozenset(int(i) for i in tokenizer.all_special_ids)
        self._drops_first_space = _drops_first_space(tokenizer)

    @property
    def unused_ids(self) -> tuple[int, ...]:
        """Ids below vocab_size that no token has."""
        return tuple(i for i in range(self.vocab_size) if i not in self.pairs)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Token ids of a text. Raises RequestError for text that is not valid Unicode."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RequestError("the text contains half of a surrogate pair, which is no character") from None
        with self._lock:
            return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens))

    def encode_chat(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Token ids of a chat up to where the assistant answers.

        Raises RequestError (param `messages`) when the model has no chat template or its template refuses the messages.
        """
        if not self._tokenizer.chat_template:
            raise RequestError("this model has no chat template; use completions instead", param="messages")
        shown = [
            {"role": m.role, "content": m.content} | ({"name": m.name} if m.name is not None else {}) for m in messages
        ]
        try:
            with self._lock:
                text = self._tokenizer.apply_chat_template(shown, tokenize=False, add_generation_prompt=True)
        except (TemplateError, TypeError, ValueError, IndexError) as error:
            raise RequestError(f"the model's chat template refuses these messages: {error}", param="messages") from None
        return self.encode(str(text), add_special_tokens=False)

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of tokens. Raises RequestError for an id outside the vocabulary."""
        skipped = self._special if skip_special_tokens else frozenset()
        raw = b"".join(self.token_bytes(t) for t in tokens if t not in skipped)
        if self._drops_first_space and raw.startswith(b" "):
            raw = raw[1:]
        return raw.decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Raw bytes of one token; none for an unused id. Raises RequestError for an id outside the vocabulary."""
        if not 0 <= token < self.vocab_size:
            raise RequestError(f"token {token} is not in the vocabulary of {self.vocab_size} tokens")
        return self.pairs.get(token, b"")

    def token_text(self, token: int) -> str:
        """Text of one token; U+FFFD for bytes that are no whole character."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def is_special(self, token: int) -> bool:
        """Is the token left out of texts?"""
        return token in self._special

    def stream(self, prompt: Sequence[int] = ()) -> TextStream:
        """Decodes what follows `prompt`, token by token."""
        return TextStream(self, prompt, drops_first_space=self._drops_first_space)


class TextStream:
    """Incremental decoding: pushes and the final flush together are the text of all tokens (special ones left out).

    A character is given out when its last byte is there. Behind a prompt that ends within a character, the rest of that
    character comes first, and a leading space is kept.
    """

    def __init__(self, codec: TextCodec, prompt: Sequence[int], *, drops_first_space: bool) -> None:
        self._codec = codec
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        shown = [t for t in prompt if not codec.is_special(t)]
        self._at_start = drops_first_space and not shown
        tail = b"".join(codec.token_bytes(t) for t in shown[-8:])
        self._utf8.decode(tail)

    def push(self, token: int) -> str:
        """New complete text; "" while a character is incomplete or for a special token."""
        if self._codec.is_special(token):
            return ""
        raw = self._codec.token_bytes(token)
        if self._at_start and raw:
            self._at_start = False
            raw = raw[1:] if raw.startswith(b" ") else raw
        return self._utf8.decode(raw)

    def flush(self) -> str:
        """What is left: U+FFFD for a broken tail."""
        return self._utf8.decode(b"", final=True)
