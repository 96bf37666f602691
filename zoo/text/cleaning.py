"""Cleaning of a text before it is split into words: rules that a tokenizer carries with it."""

import re
from collections.abc import Callable
from functools import cache

# Regular expressions and their replacements, applied in order, by the name that `train` takes. Applying them twice
# changes nothing. The patterns mean the same in Python and in the `tokenizers` library. Saved tokenizers contain them
# literally, so an entry is never changed: add one with another name.
_BLOCKS = "address|article|blockquote|div|dd|dl|dt|h[1-6]|hr|li|ol|p|pre|section|table|td|th|tr|ul"
_INLINE = "a|abbr|b|big|cite|code|del|em|font|i|img|ins|kbd|mark|q|s|small|span|strike|strong|sub|sup|tt|u"
CLEANING: dict[str, tuple[tuple[str, str], ...]] = {
    "invisible": (("[\u00ad\u200b\u2060\ufeff]", ""),),  # soft hyphens, zero-width spaces, byte order marks
    "html": (
        (r"&(?:(?:amp|#38);)+", "&"),
        (r"&(?:lt|#60);", "<"),
        (r"&(?:gt|#62);", ">"),
        (r"&(?:quot|ldquo|rdquo|#34|#822[01]);", '"'),
        (r"&(?:apos|lsquo|rsquo|#0?39|#[xX]27|#821[67]);", "'"),
        (r"&(?:nbsp|#160);", " "),
        (r"&(?:hellip|#8230);", "..."),
        (r"(?i)<br\s*/?>", "\n"),
        (rf"(?i)</?(?:{_BLOCKS})(?:\s[^<>]*)?/?>", "\n\n"),
        (rf"(?i)</?(?:{_INLINE})(?:\s[^<>]*)?/?>", ""),
    ),
    "treebank": (
        (r"(?i)-lrb-", "("),
        (r"(?i)-rrb-", ")"),
        (r"(?i)-lsb-", "["),
        (r"(?i)-rsb-", "]"),
        (r"(?i)-lcb-", "{"),
        (r"(?i)-rcb-", "}"),
        (r"\\(?=[/*])", ""),
    ),
    "quotes": ((r"[“„]|(?<![^\s(\[])\"", "``"), (r"[”\"]", "''")),
}


@cache
def cleaner(cleaning: tuple[str, ...]) -> Callable[[str], str]:
    """Applies a tokenizer's cleaning."""
    patterns = [(re.compile(pattern), content) for name in cleaning for pattern, content in CLEANING[name]]

    def clean(text: str) -> str:
        for pattern, content in patterns:
            text = pattern.sub(content, text)
        return text

    return clean
