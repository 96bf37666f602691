"""What is done to a text before it is cut into words: rules that a tokenizer carries with it."""

import re
from collections.abc import Callable
from functools import cache

# What stands in a text for something else, by the name that `train` is given: patterns, and what they become, one after
# the other. A second time they change nothing. The patterns mean the same to Python and to the `tokenizers` library.
# Saved tokenizers hold them
# as they stand here, so an entry is never changed: add one of another name.
_BLOCKS = "address|article|blockquote|div|dd|dl|dt|h[1-6]|hr|li|ol|p|pre|section|table|td|th|tr|ul"
_INLINE = "a|abbr|b|big|cite|code|del|em|font|i|img|ins|kbd|mark|q|s|small|span|strike|strong|sub|sup|tt|u"
CLEANING: dict[str, tuple[tuple[str, str], ...]] = {
    "invisible": (("[\u00ad\u200b\u2060\ufeff]", ""),),  # soft hyphens, spaces without width, byte order marks
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
    """What `Tokenizer.clean` does."""
    patterns = [(re.compile(pattern), content) for name in cleaning for pattern, content in CLEANING[name]]

    def clean(text: str) -> str:
        for pattern, content in patterns:
            text = pattern.sub(content, text)
        return text

    return clean
