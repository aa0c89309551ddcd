"""The family's tokenizer: byte-level BPE of 2,048 tokens, each digit its own token, ChatML.

Byte-level means that any text round-trips. Trained on the family's own records, so that their words are single tokens;
other text costs more tokens, down to one per byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from specgrove.training import words
from specgrove.training.records import Message, training

VOCAB_SIZE = 2048
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)
CORPUS_SAMPLES = 20_000

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def _corpus(seed: int) -> Iterator[str]:
    """Texts that the merges are learned from: sampled turns, and listed words with a space before it."""
    yield from ("user\n", "assistant\n", "system\n") * 50
    for sample in islice(training(seed), CORPUS_SAMPLES):
        yield from (message["content"] for message in sample.messages)
        yield sample.answer
    yield from (f" {word}" for word in [*words.WORDS * 20, *words.COMMON * 5])
    yield from (form for word in words.COMMON * 2 for form in (word, word.capitalize()))


def train_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Learn the merges from the records of `seed`; takes a few seconds."""
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    model.train_from_iterator(_corpus(seed), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )


def load_tokenizer(directory: Path) -> PreTrainedTokenizerFast:
    """Read a tokenizer saved by save_pretrained."""
    return PreTrainedTokenizerFast.from_pretrained(directory)


def end_ids(tokenizer: PreTrainedTokenizerFast) -> tuple[int, int]:
    """Ids of the end of a turn and of the end of a text, which is also the padding."""
    ids = tokenizer.convert_tokens_to_ids([TURN_END, END_OF_TEXT])
    assert isinstance(ids, list)
    turn, text = ids
    return turn, text


def prompt_ids(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message]) -> list[int]:
    """Token ids of a conversation that waits for the model's turn."""
    return list(tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False))


def conversation_ids(tokenizer: PreTrainedTokenizerFast, turns: Sequence[Message]) -> tuple[list[int], list[bool]]:
    """Ids of a finished conversation, and for each whether the model writes it (its turns and their end tokens)."""
    ids: list[int] = []
    written: list[bool] = []
    for turn in turns:
        head = f"{TURN_START}{turn['role']}\n"
        for text, own in ((head, False), (turn["content"] + TURN_END, turn["role"] == "assistant"), ("\n", False)):
            piece = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
            ids += piece
            written += [own] * len(piece)
    return ids, written
