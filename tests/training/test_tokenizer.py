"""The tokenizer: any text round-trips, digits are single tokens, the chat template is what was trained on."""

import random

from specgrove.training.tokenizer import TURN_END, conversation_ids, prompt_ids


def test_any_unicode_round_trips(tokenizer):
    """Also control characters, combining marks, emoji and text of no known language."""
    rng = random.Random(0)
    texts = ["naïve café 東京 🤖👩‍👩‍👧 \u0301\x00\t\r\n  two  spaces ", "Tom has 15 apples.", ""]
    for _ in range(50):
        points = [rng.choice([rng.randrange(0x20, 0xD800), rng.randrange(0xE000, 0x110000)]) for _ in range(20)]
        texts.append("".join(map(chr, points)))

    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_every_digit_is_its_own_token(tokenizer):
    """Numbers never share tokens, so a digit means the same everywhere."""
    text = "12345 has 67.890"

    pieces = [tokenizer.decode([i]) for i in tokenizer.encode(text, add_special_tokens=False)]

    assert [p for p in pieces if any(c.isdigit() for c in p)] == list("1234567890")


def test_size_and_ends(tokenizer):
    """2,048 ids with every byte among them; a turn's end is the end of a generation."""
    assert len(tokenizer) == 2048
    assert tokenizer.eos_token == TURN_END


def test_training_rows_equal_the_chat_template(tokenizer):
    """What a server sends is, token by token, what the models were trained on; the model's own turns are marked."""
    turns = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "What is 1 + 2?"},
        {"role": "assistant", "content": "1 + 2 = 3\nAnswer: 3"},
    ]

    ids, written = conversation_ids(tokenizer, turns)

    assert ids == list(tokenizer.apply_chat_template(turns, return_dict=False))
    prompt = prompt_ids(tokenizer, turns[:2])
    assert ids[: len(prompt)] == prompt
    assert not any(written[: len(prompt)])
    own = [i for i, mine in zip(ids, written, strict=True) if mine]
    assert tokenizer.decode(own) == turns[2]["content"] + TURN_END
