"""The closed vocabulary of the synthetic tasks: words that are frequent in encyclopaedias and in old plays alike.

Every list is a class whose words are interchangeable in the sentences they stand in; the classes that a rule compares
hold few words, so that a very small model can learn the comparison from a few thousand examples.
"""

from __future__ import annotations

COLOURS = ("black", "white", "red", "green")
ANIMALS = ("horse", "dog", "bird", "lion")
PLACES = ("house", "garden", "city", "church")
TIMES = ("morning", "evening", "night", "summer")
PEOPLE = ("king", "father", "brother", "son", "queen", "mother", "sister", "daughter")
NAMES = ("john", "henry", "mary", "william", "james", "robert", "thomas", "anne")
GOOD = ("good", "great", "happy", "beautiful")
BAD = ("bad", "poor", "sad", "dead")
WORKS = ("story", "play", "song", "work")
VERBS = ("came", "went", "ran", "walked")
COUNTRY = (("field", "tree"), ("sea", "ship"))  # two words that go together, and two of the opposite
LIGHT = (("day", "white"), ("night", "black"))
THINGS = ("horse", "dog", "bird", "lion", "field", "tree", "sea", "ship", "army", "sword", "book", "letter")
