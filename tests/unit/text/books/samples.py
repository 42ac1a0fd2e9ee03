"""Books that several tests read: a play in Markdown and a text of Project Gutenberg."""

SPEECHES = "\n\n".join(f"**SPEAKER {n}**  \nLine one of speech {n},  \nline two of it." for n in range(12))
PLAY = f"# A Play\n\n## ACT I\n\n### SCENE I. A street.\n\n_Enter ALL\nof them_\n\n{SPEECHES}\n\n_Exeunt_\n"
GUTENBERG = """The Project Gutenberg eBook of A Tale

*** START OF THE PROJECT GUTENBERG EBOOK A TALE ***

Produced by Some Volunteers at home.

A TALE

CONTENTS

CHAPTER I. THE START

It was a dark night, and the every-
day noises of the street had _quite_
died away.

[Illustration: The street at night.]

"Who is there?" he asked.

CHAPTER II

THE END

*** END OF THE PROJECT GUTENBERG EBOOK A TALE ***

Licence text that is no part of the book.
"""
