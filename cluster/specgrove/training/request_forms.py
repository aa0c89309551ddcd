"""The wordings of plain requests; `requests` draws what they are about."""

from __future__ import annotations

from specgrove.training.problem import Forms

COUNT = Forms(
    (
        "Count from {0} to {1}.",
        "Count {2} from {0} to {1}.",
        "Write the numbers from {0} to {1}.",
        "List all numbers from {0} to {1}.",
        "Start at {0} and count to {1}.",
        "Please count from {0} to {1}.",
        "Say the numbers {0} to {1} in order.",
        "Give me the numbers from {0} {2} to {1}.",
    ),
    (
        "Please count {2} from {0} to {1}.",
        "List the numbers {0} to {1} in order.",
        "Start at {0} and write the numbers to {1}.",
        "Say all numbers from {0} {2} to {1}.",
        "Give me the numbers {0} to {1}.",
        "Count all numbers from {0} to {1}.",
    ),
).crossed(
    ("Count ", "Please count ", "Can you count "),
    ("from {0} to {1}", "{2} from {0} to {1}", "all numbers from {0} to {1}"),
    (".", ", please.", " for me."),
)
SORT = Forms(
    (
        "Sort these numbers: {0}",
        "Put these numbers in order: {0}",
        "Order the numbers {0}",
        "Sort {0} from small to large.",
        "Write these numbers from small to large: {0}",
        "Please sort the numbers {0}",
        "Which order do these numbers have: {0}",
        "Arrange {0} in order.",
    ),
    (
        "Please put the numbers {0} in order.",
        "Arrange these numbers from small to large: {0}",
        "Please order these numbers: {0}",
        "Write the numbers {0} in order.",
        "Sort the numbers {0} in order.",
        "Put {0} in order from small to large.",
    ),
).crossed(
    ("Sort ", "Order ", "Arrange ", "Please sort ", "Can you sort "),
    ("these numbers", "the numbers", "these numbers from small to large"),
    (": {0}", " {0}", ", please: {0}"),
)
REPEAT = Forms(
    (
        'Say "{0}" {1} times.',
        'Repeat the word "{0}" {1} times.',
        'Write "{0}" {1} times.',
        'Please write the word "{0}" {1} times.',
        'I need "{0}" {1} times, one a line.',
        'Write {1} lines of "{0}".',
        'Repeat "{0}" until you have it {1} times.',
        'The word "{0}", {1} times, please.',
    ),
    (
        'Please say "{0}" {1} times.',
        'Write the word "{0}" {1} times.',
        'I need the word "{0}" {1} times.',
        'Say the word "{0}" {1} times, one a line.',
        'Please repeat "{0}" {1} times.',
        'Repeat "{0}" {1} times.',
    ),
).crossed(
    ("Say ", "Write ", "Repeat ", "Please write ", "Can you say "),
    ('"{0}"', 'the word "{0}"'),
    (" {1} times.", " {1} times, one a line.", " {1} times, please."),
)
ECHO = Forms(
    (
        "Repeat after me:\n{0}",
        "Copy this:\n{0}",
        "Say exactly this:\n{0}",
        "Write this again:\n{0}",
        "Please copy this line:\n{0}",
        "Give this back as it is:\n{0}",
        "Echo:\n{0}",
        "Say this after me:\n{0}",
    ),
    (
        "Copy this line:\n{0}",
        "Please repeat after me:\n{0}",
        "Write exactly this:\n{0}",
        "Say this again:\n{0}",
        "Please give this back:\n{0}",
        "Copy exactly this:\n{0}",
    ),
).crossed(
    ("Repeat ", "Copy ", "Say ", "Please copy ", "Write "),
    ("this", "exactly this", "this line", "the next line"),
    (":\n{0}", ", please:\n{0}", " again:\n{0}"),
)
REVERSE = Forms(
    (
        "Reverse the order of these lines:\n{0}",
        "Write these lines backwards:\n{0}",
        "Reverse these lines:\n{0}",
        "Give me these lines from last to first:\n{0}",
        "Turn the order of these lines around:\n{0}",
        "Please write these lines in reverse order:\n{0}",
        "Last line first, please:\n{0}",
        "Put these lines in reverse:\n{0}",
    ),
    (
        "Please reverse these lines:\n{0}",
        "Write these lines from last to first:\n{0}",
        "Give me these lines in reverse order:\n{0}",
        "Put these lines backwards:\n{0}",
        "Please turn the order of these lines around:\n{0}",
        "Write these lines in reverse:\n{0}",
    ),
).crossed(
    ("Reverse ", "Turn around ", "Please reverse ", "Can you reverse "),
    ("these lines", "the lines", "the order of the lines", "the next lines"),
    (":\n{0}", ", please:\n{0}", " for me:\n{0}"),
)
JSON = Forms(
    (
        "Write JSON with {0}.",
        "Make a JSON object: {0}.",
        "Give me JSON with {0}.",
        "Please write a JSON object with {0}.",
        "As JSON: {0}.",
        "Put this into JSON: {0}.",
        "JSON, please: {0}.",
        "Turn this into a JSON object: {0}.",
    ),
    (
        "Please make JSON with {0}.",
        "Give me a JSON object: {0}.",
        "Write this as JSON: {0}.",
        "Put this into a JSON object: {0}.",
        "Turn this into JSON, please: {0}.",
        "Make JSON: {0}.",
    ),
).crossed(
    ("Write ", "Make ", "Give me ", "Please make ", "Can you write "),
    ("JSON", "a JSON object", "an object in JSON"),
    (" with {0}.", ": {0}.", " from {0}."),
)
BULLETS = Forms(
    (
        "Make a bullet list of {0}.",
        "List these items: {0}.",
        "Write a bullet list: {0}.",
        "Please list {0} with bullets.",
        "Put these items into a list: {0}.",
        "Turn this into bullets: {0}.",
        "A bullet list, please: {0}.",
        "Give me a bullet list of {0}.",
    ),
    (
        "Please make a bullet list: {0}.",
        "Give me bullets: {0}.",
        "Turn these items into a bullet list: {0}.",
        "List this with bullets: {0}.",
        "Write a list of bullets: {0}.",
        "Put this into a bullet list: {0}.",
    ),
).crossed(
    ("Write ", "Make ", "Give me ", "Please make ", "Can you write "),
    ("a bullet list", "a list with bullets", "bullets"),
    (" of {0}.", ": {0}.", " from {0}."),
)
MEMBERS = Forms(
    (
        "Name {0} {1}.",
        "List {0} {1}.",
        "Give me {0} {1}.",
        "Please name {0} {1}.",
        "Tell me {0} {1}.",
        "What are {0} {1}?",
        "Write down {0} {1}.",
        "I need {0} {1}.",
    ),
    (
        "Please list {0} {1}.",
        "Please tell me {0} {1}.",
        "Can you name {0} {1}?",
        "Write {0} {1}.",
        "Please give me {0} {1}.",
        "Name me {0} {1}, please.",
    ),
).crossed(
    ("Name ", "List ", "Tell me ", "Please list ", "Can you list ", "I want "),
    ("{0} {1}",),
    (".", ", please.", " for me."),
)
DEFINITION = Forms(
    (
        "What is {0} {1}?",
        "Define {1}.",
        "Explain the word {1}.",
        "What does {1} mean?",
        "Tell me what {0} {1} is.",
        "What is meant by {1}?",
        "Please explain what {0} {1} is.",
        "Say what {1} means.",
    ),
    (
        "Please define {1}.",
        "Explain what {0} {1} is.",
        "Tell me what {1} means.",
        "What does the word {1} mean?",
        "Please say what {0} {1} is.",
        "Explain {1}.",
    ),
).crossed(
    ("Define ", "Explain ", "Please explain ", "Can you explain "),
    ("{1}", "the word {1}", "what {0} {1} is", "what {1} means"),
    (".", ", please.", " to me."),
)
SAYING = Forms(
    (
        "Finish the saying: {0}",
        "Complete this saying: {0}",
        "How does this saying end: {0}",
        "Finish: {0}",
        "What comes after: {0}",
        "Complete: {0}",
        "Say the rest: {0}",
        "Go on: {0}",
    ),
    (
        "Complete the saying: {0}",
        "Finish this saying: {0}",
        "Please finish: {0}",
        "Please complete this saying: {0}",
        "How does the saying go on: {0}",
        "Say the rest of the saying: {0}",
    ),
).crossed(
    ("Finish ", "Complete ", "Please complete ", "Can you finish "),
    ("this", "the saying", "this saying", "these words"),
    (": {0}", ", please: {0}", " for me: {0}"),
)
GREETING = Forms(
    ("{0}", "{0}.", "{0}!", "{0}?", "{0}, Grove!", "{0}, Grove."),
    ("{0}, Grove?", "{0}, Grove", "Grove, {0}", "Grove, {0}!", "Grove! {0}", "Grove: {0}"),
).crossed(
    ("", "Oh, ", "Well, "),
    ("{0}",),
    ("", ".", "!", "?", " there!", ", friend!"),
)
REFUSED = Forms(
    (
        "{0}.",
        "Please {1}.",
        "Can you {1}?",
        "I want you to {1}.",
        "Could you {1}, please?",
        "{0}, please.",
        "I need you to {1}.",
        "You must {1}.",
    ),
    (
        "Please {1} now.",
        "Can you please {1}?",
        "Could you {1}?",
        "I want you to {1}, please.",
        "{0} now, please.",
        "Will you {1}?",
    ),
).crossed(
    ("Please ", "Can you ", "Could you ", "I want you to ", "Will you ", "You should "),
    ("{1}",),
    (".", ", please.", " for me.", " today."),
)
