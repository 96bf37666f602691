"""From text to token ids and back."""

from zoo.text.tokenizer import BOS, EOS, KINDS, PAD, SPECIAL_NAMES, UNK, Tokenizer

__all__ = ["BOS", "EOS", "KINDS", "PAD", "SPECIAL_NAMES", "UNK", "Tokenizer"]
