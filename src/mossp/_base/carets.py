"""Errors about a place in a text: what is wrong, the text, and a caret under the place."""

from __future__ import annotations

import unicodedata

LONGEST = 500  # characters of a text that is read, and of one that is shown


class TextError(ValueError):
    """A text that cannot be read.

    Examples
    --------
    >>> print(TextError("There is no rate `frp`.", "2 * frp <= 0.1", 4))
    There is no rate `frp`.
    2 * frp <= 0.1
        ^
    """

    def __init__(self, reason: str, text: str, position: int) -> None:
        super().__init__(reason, text, position)  # all of them, so that it can be pickled
        self.reason, self.text, self.position = reason, text, position

    def __str__(self) -> str:
        text = self.text[: LONGEST + 1]
        shown = "".join(c if c.isprintable() else "\ufffd" for c in text)  # one place for each
        # Under a wide character, a Chinese one say, goes a space of the same width.
        wide = (unicodedata.east_asian_width(c) in "WF" for c in text[: self.position])
        return f"{self.reason}\n{shown}\n" + "".join("\u3000" if w else " " for w in wide) + "^"
