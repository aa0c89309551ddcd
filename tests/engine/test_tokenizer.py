"""Bytes of tokens, decoding, streaming and chat templates."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specgrove.core.cards import vocabulary_hash
from specgrove.core.request import ChatMessage
from specgrove.engine.tokenizer import TextCodec, vocabulary
from specgrove.errors import RequestError

TEXTS = [
    "Hello  world, how are you?\n\tfine 12 ",
    "naïve café — “quotes” …",
    "你好，世界。こんにちは 안녕",
    "👩‍👩‍👧‍👦 flags 🇩🇪🇫🇷 skin 👍🏽",
    "e\u0301a\u0308\u0323 z\u0335 नमस्ते",
    " leading and trailing ",
    "",
]
CHAT = (
    "{% for m in messages %}{% if m.role == 'alien' %}{{ raise_exception('no aliens') }}{% endif %}"
    "<s>{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


@functools.cache
def byte_level() -> PreTrainedTokenizerFast:
    """Byte-level BPE whose merges cut characters in the middle, two specials, one added token with spaces."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "w"), ("h", "e"), ("ð", "Ł"), ("ä", "½"), ("Ŀ", "ä"), ("he", "l")]
    pieces = alphabet + [a + b for a, b in merges]
    backend = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])
    backend.add_tokens([AddedToken("   ", normalized=False), AddedToken("<tool>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", chat_template=CHAT)


@functools.cache
def byte_fallback() -> PreTrainedTokenizerFast:
    """As sentencepiece models for llama come: U+2581 for spaces, a space put in front, bytes for what is unknown."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *"abcdehlorwï", "▁w", "▁he"]
    merges = [("▁", "w"), ("h", "e"), ("▁", "he")]
    vocab = {p: i for i, p in enumerate([*pieces, "he"])}
    backend = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@functools.cache
def word_pieces() -> PreTrainedTokenizerFast:
    """Neither bytes nor sentencepiece: words and their continuations."""
    vocab = {p: i for i, p in enumerate(["[UNK]", "hel", "##lo", "world", "[EOS]"])}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(cleanup=False)
    backend.add_special_tokens(["[EOS]"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="[EOS]", unk_token="[UNK]")


KINDS = {"byte level": byte_level, "byte fallback": byte_fallback}


def streamed(codec: TextCodec, tokens, prompt=()) -> str:
    """All pushes and the flush."""
    stream = codec.stream(prompt)
    return "".join([*map(stream.push, tokens), stream.flush()])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(kind, text):
    """Encoding, our decoding, the tokenizer's decoding and the stream agree on real text."""
    tokenizer = KINDS[kind]()
    codec = TextCodec(tokenizer)
    tokens = codec.encode(text)

    assert text == codec.decode(tokens)
    assert text == tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert text == streamed(codec, tokens)


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), text=st.text(max_size=20), cut=st.integers(0, 40))
def test_any_text_streams_without_half_characters(kind, text, cut):
    """Pushes hold whole characters; behind a prompt that may end within one, the rest comes out."""
    codec = TextCodec(KINDS[kind]())
    tokens = codec.encode(text)
    stream = codec.stream()
    pushed = [stream.push(t) for t in tokens]

    assert text == "".join(pushed) + stream.flush()
    assert not any("\ufffd" in piece for piece in pushed) or "\ufffd" in text
    cut = min(cut, len(tokens))
    whole = codec.decode(tokens[:cut]) if cut else ""
    if "\ufffd" not in whole:
        assert text == whole + streamed(codec, tokens[cut:], tokens[:cut])


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), seeds=st.lists(st.integers(0, 10**6), max_size=24))
def test_any_tokens_stream_as_they_decode(kind, seeds):
    """Random ids, mostly broken UTF-8: pushes and flush together are the decoding of all."""
    codec = TextCodec(KINDS[kind]())
    tokens = [s % codec.vocab_size for s in seeds]

    assert codec.decode(tokens) == streamed(codec, tokens)


@settings(max_examples=100, deadline=None)
@given(seeds=st.lists(st.integers(0, 10**6), max_size=24))
def test_byte_level_decoding_is_the_tokenizers_own(seeds):
    """Broken UTF-8 too: the same replacement characters."""
    tokenizer = byte_level()
    codec = TextCodec(tokenizer)
    tokens = [s % codec.vocab_size for s in seeds]

    for skip in (True, False):
        expected = tokenizer.decode(tokens, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        assert expected == codec.decode(tokens, skip_special_tokens=skip)


def test_one_character_over_four_tokens():
    """Nothing comes out before the last byte."""
    codec = TextCodec(byte_fallback())
    tokens = [3 + b for b in "🌳".encode()]
    stream = codec.stream([262])

    assert [stream.push(t) for t in tokens] == ["", "", "", "🌳"]


def test_a_broken_tail_is_flushed():
    """A character that never ends becomes U+FFFD at the end, or when something else follows."""
    codec = TextCodec(byte_level())
    half = [i for i, raw in vocabulary(byte_level()) if raw == b"\xe4"]
    stream = codec.stream()
    assert (stream.push(half[0]), stream.flush()) == ("", "\ufffd")
    stream = codec.stream()
    stream.push(half[0])
    assert stream.push(codec.encode("w")[0]) == "\ufffdw"


def test_leading_space_depends_on_what_came_before():
    """Sentencepiece drops the first space of a text, not the first one behind a prompt; specials are no text."""
    tokenizer = byte_fallback()
    codec = TextCodec(tokenizer)
    he = tokenizer.convert_tokens_to_ids("▁he")

    assert streamed(codec, [he, he]) == "he he"
    assert streamed(codec, [he], [1]) == "he"
    assert streamed(codec, [he], [1, he]) == " he"


def test_raw_bytes_of_both_kinds():
    """Spaces, bytes, added and special tokens."""
    level = {raw: i for i, raw in vocabulary(byte_level())}
    assert {b" w", b"\xf0\x9f", b"\x00", b"</s>", b"   ", b"<tool>"} <= level.keys()
    fallback = dict(vocabulary(byte_fallback()))
    assert fallback[3 + 0xE2] == b"\xe2"
    assert {b" ", b" he", "ï".encode(), b"<s>"} <= set(fallback.values())
    assert sorted(fallback) == list(range(len(fallback)))


def test_other_tokenizers_fall_back_to_what_they_add():
    """Word pieces: a space before a word, none before a continuation."""
    codec = TextCodec(word_pieces())
    tokens = codec.encode("hello world")

    assert codec.decode(tokens) == "hello world" == streamed(codec, tokens)
    assert [codec.token_bytes(i) for i in range(1, 4)] == [b" hel", b"lo", b" world"]


def test_ids_without_a_row_do_not_count():
    """A tokenizer with more ids than the model has rows, and one with a hole."""
    codec = TextCodec(byte_level(), rows=100)
    assert codec.vocab_size == 100
    assert codec.unused_ids == ()
    assert vocabulary_hash(codec.pairs.items()) != vocabulary_hash(vocabulary(byte_level()))


def test_chat_template():
    """Rendered up to the assistant's turn; specials of the template are specials."""
    codec = TextCodec(byte_level())
    tokens = codec.encode_chat([ChatMessage("user", "hello")])

    assert codec.decode(tokens, skip_special_tokens=False) == "<s>user: hello\n<s>assistant: "
    assert tokens.count(byte_level().bos_token_id) == 2


def test_chat_refusals_name_the_field():
    """No template, and a template that refuses."""
    with pytest.raises(RequestError, match="no chat template") as caught:
        TextCodec(byte_fallback()).encode_chat([ChatMessage("user", "hello")])
    assert caught.value.param == "messages"
    with pytest.raises(RequestError, match="no aliens") as caught:
        TextCodec(byte_level()).encode_chat([ChatMessage("alien", "hello")])
    assert caught.value.param == "messages"


def test_what_is_no_text_and_no_token():
    """Half a surrogate pair, and an id past the vocabulary."""
    codec = TextCodec(byte_level())
    with pytest.raises(RequestError, match="surrogate"):
        codec.encode("a\ud800")
    with pytest.raises(RequestError, match="token 9999 is not in the vocabulary"):
        codec.decode([9999])
