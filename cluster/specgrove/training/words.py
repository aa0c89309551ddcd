"""Word lists and short texts that the records are made of, all written for this project.

Kept free of code so that the vocabulary of the bundled family can be read, and changed, in one place.
"""

from __future__ import annotations


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _listed(
    "Tom Mia Ben Ana Leo Eva Sam Zoe Max Ida Tim Amy Jon Lea Kai Liv Dan Nia Ali Ada Rob Sue Omar Lin Paul Nora "
    "Hugo Rosa Emil Vera"
)

NUMBER_WORDS = _listed("zero one two three four five six seven eight nine ten eleven twelve")

THINGS = _listed(
    "apples pears plums books pens cards coins stones shells eggs cakes balls stamps cups boxes roses nuts "
    "stickers marbles tickets"
)

WORDS = _listed(
    "red blue green black white gold river stone cloud rain snow wind fire tree leaf root seed grass field hill "
    "lake sea sand moon star sun night day king queen ship boat road bridge house door wall roof table chair lamp "
    "clock book page word song drum bell horn cat dog fox wolf bear deer horse cow sheep goat hen duck fish frog "
    "bird owl bread milk salt rice soup tea cake apple lemon grape happy quiet quick slow warm cold sweet sharp "
    "soft loud early late open near far high low long short old young round flat deep wide"
)

CATEGORIES: dict[str, tuple[str, ...]] = {
    "fruits": ("apple", "pear", "plum", "grape", "lemon", "cherry"),
    "animals": ("cat", "dog", "horse", "cow", "sheep", "goat"),
    "colors": ("red", "blue", "green", "yellow", "black", "white"),
    "birds": ("owl", "duck", "hen", "crow", "swan", "robin"),
    "tools": ("hammer", "saw", "drill", "wrench", "file", "knife"),
    "drinks": ("water", "tea", "coffee", "milk", "juice", "cocoa"),
    "shapes": ("circle", "square", "triangle", "star", "cube", "ring"),
    "planets": ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn"),
    "metals": ("iron", "gold", "silver", "copper", "tin", "zinc"),
    "seasons": ("spring", "summer", "autumn", "winter"),
}

DEFINITIONS: dict[str, str] = {
    "river": "A river is a large stream of water that flows to the sea.",
    "bridge": "A bridge is a way built over water or a road.",
    "clock": "A clock is a machine that shows the time.",
    "lamp": "A lamp is a thing that gives light.",
    "book": "A book is a set of pages bound together for reading.",
    "island": "An island is land with water all around it.",
    "mountain": "A mountain is a very high hill.",
    "desert": "A desert is dry land with little rain.",
    "triangle": "A triangle is a shape with three sides.",
    "square": "A square is a shape with four equal sides.",
    "circle": "A circle is a round shape with no corners.",
    "baker": "A baker is a person who makes bread and cakes.",
    "farmer": "A farmer is a person who grows food.",
    "teacher": "A teacher is a person who helps others learn.",
    "library": "A library is a place where people borrow books.",
    "kitchen": "A kitchen is a room where people cook.",
    "garden": "A garden is land where people grow plants.",
    "key": "A key is a thing that opens a lock.",
    "map": "A map is a drawing that shows where places are.",
    "owl": "An owl is a bird that hunts at night.",
    "bee": "A bee is an insect that makes honey.",
    "week": "A week is a time of seven days.",
    "dozen": "A dozen is a group of twelve things.",
    "token": "A token is a small piece of text that a model reads.",
    "draft": "A draft is a small model that guesses the next tokens.",
}

SAYINGS: dict[str, str] = {
    "a stitch in time": "saves nine",
    "many hands": "make light work",
    "the early bird": "catches the worm",
    "better late": "than never",
    "two heads are better": "than one",
    "practice": "makes perfect",
    "look before": "you leap",
    "all that glitters": "is not gold",
    "when in Rome": "do as the Romans do",
    "no smoke": "without fire",
    "actions speak": "louder than words",
    "an apple a day": "keeps the doctor away",
    "easy come": "easy go",
    "haste": "makes waste",
    "birds of a feather": "flock together",
    "still waters": "run deep",
}

GREETINGS: dict[str, str] = {
    "Hello": "Hello! How can I help you?",
    "Hi": "Hello! How can I help you?",
    "Hi there": "Hello! How can I help you?",
    "Hey": "Hello! How can I help you?",
    "Good morning": "Good morning! How can I help you?",
    "Good evening": "Good evening! How can I help you?",
    "How are you": "I am well, thank you. How can I help you?",
    "Thank you": "You are welcome!",
    "Thanks": "You are welcome!",
    "Thanks a lot": "You are welcome!",
    "Bye": "Goodbye!",
    "Goodbye": "Goodbye!",
    "See you later": "Goodbye!",
    "Who are you": "I am Grove, a very small language model.",
    "What is your name": "I am Grove, a very small language model.",
    "What can you do": "I can solve small word problems, reach numbers, plan block moves, and write lists and JSON.",
}

REFUSAL = "I can't do that. I am a very small model and only know sums, numbers, blocks, words, lists and JSON."

REFUSED_TASKS = (
    "write a poem about {0}",
    "write a story about {0}",
    "write a Python program about {0}",
    "translate {0} into French",
    "tell me the news about {0}",
    "tell me the price of {0}",
    "draw a picture of {0}",
    "explain the history of {0}",
    "find a website about {0}",
    "send an email about {0}",
    "predict the future of {0}",
    "play some music about {0}",
)

REFUSED_QUESTIONS = (
    "What is the weather in {0}?",
    "Who is the president of {0}?",
    "How many people live in {0}?",
    "What happened in {0} yesterday?",
    "How do I get to {0}?",
    "When was {0} founded?",
)

PLACES = _listed("Paris London Rome Berlin Tokyo Oslo Cairo Lima Delhi Madrid Vienna Prague")

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are Grove, a small language model.",
    "Answer briefly.",
    "Think step by step.",
)

COMMON = _listed(
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word "
    "but not what all were we when your can said there use an each which she do how their if will up other about "
    "out many then them these so some her would make like him into time has look two more write go see number no "
    "way could people my than first water been call who oil its now find long down day did get come made may part "
    "over new sound take only little work know place year live me back give most very after thing our just name "
    "good sentence man think say great where help through much before line right too mean old any same tell boy "
    "follow came want show also around form three small set put end does another well large must big even such "
    "because turn here why ask went men read need land different home us move try kind hand picture again change "
    "off play spell air away animal house point page letter mother answer found study still learn should world "
    "high every between own below country plant last school father keep start city earth eye light thought head "
    "under story saw left few while along might close something seem next hard example begin life always those "
    "both paper together got group often run important until children side feet car mile night walk white sea "
    "began grow took river four carry state once book hear stop without second later miss idea enough eat face "
    "watch far really almost let above girl sometimes mountain cut young talk soon list song being leave family "
    "body music color model server token text user request reply stream error value key type class def return "
    "import self true false null function string list print input output code file test"
)
"""Frequent English words: seen by the tokenizer alone, so that text unlike the records costs fewer tokens."""
