"""Every supported Python sees the same characters: cleaning asks its Unicode tables, and bytes follow from them.

Tables grow with each version: 14.0 (Python 3.11), 15.0 (3.12), 15.1 (3.13), 16.0 (3.14). docs/limits.md names what
differs; everything else must be the same.
"""

import hashlib
import unicodedata

# Characters that came after Unicode 14, and eight older ones of which a property changed since
DIFFERENT = """
19b 264 897 cf3 ece 10fc 1b4e-1b4f 1b7f 1c89-1c8a 2427-2429 2ffc-2fff 31e4-31e5 31ef a7cb-a7cd a7da-a7dc
a7f2-a7f4 ab69 105c0-105f3 10d40-10d65 10d69-10d85 10d8e-10d8f 10ec2-10ec4 10efc-10eff 1123f-11241
11380-11389 1138b 1138e 11390-113b5 113b7-113c0 113c2 113c5 113c7-113ca 113cc-113d5 113d7-113d8
113e1-113e2 116d0-116e3 1171e 11b00-11b09 11bc0-11be1 11bf0-11bf9 11f00-11f10 11f12-11f3a
11f3e-11f5a 1342f 13439-13455 13460-143fa 16100-16139 16d40-16d79 18cff 1b132 1b155 1cc00-1ccf9
1cd00-1ceb3 1d2c0-1d2d3 1df25-1df2a 1e030-1e06d 1e08f 1e4d0-1e4f9 1e5d0-1e5fa 1e5ff 1f6dc
1f774-1f776 1f77b-1f77f 1f7d9 1f8b2-1f8bb 1f8c0-1f8c1 1fa75-1fa77 1fa87-1fa89 1fa8f 1faad-1faaf
1fabb-1fabf 1fac6 1face-1facf 1fada-1fadc 1fadf 1fae8-1fae9 1faf7-1faf8 1fbcb-1fbef 2b739
2ebf0-2ee5d 31350-323af
"""
SURROGATES = range(0xD800, 0xE000)
DIGEST = "a1b474995f3b8477"


def properties(code: int) -> tuple[object, ...]:
    """All that the cleaner, the books' reader and regular expressions ask of a character."""
    text = chr(code)
    asked = [text.isupper(), text.islower(), text.isalpha(), text.isalnum(), text.isspace(), text.isprintable()]
    cases = [text.isdecimal(), text.lower(), text.upper(), text.casefold(), unicodedata.normalize("NFC", text)]
    return *asked, *cases, unicodedata.category(text), unicodedata.combining(text), unicodedata.name(text, "")


def test_all_but_the_characters_named_in_limits_are_the_same_in_every_python():
    different = set()
    for each in DIFFERENT.split():
        first, _, last = each.partition("-")
        different.update(range(int(first, 16), int(last or first, 16) + 1))
    digest = hashlib.sha256()
    for code in range(0x110000):
        if code not in different and code not in SURROGATES:
            digest.update(repr(properties(code)).encode())
    assert digest.hexdigest()[:16] == DIGEST, f"Unicode {unicodedata.unidata_version} differs elsewhere too"
