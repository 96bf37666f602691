"""Lightning data modules, one class a data set."""

from zoo.data.caption_pairs import CaptionPairs
from zoo.data.captions import COCO, Flickr8k, Flickr30k, ImageCaptions
from zoo.data.cloze import CBT, CBTLike, Cloze, CNNDailyMail
from zoo.data.documents import FDUMTL, IMDB, LabeledText, Reuters, TwentyNewsgroups
from zoo.data.next_word import NextWord
from zoo.data.plain_text import PTB, Brown, ChildrensBooks, PlainText, WikiText2
from zoo.data.sentences import SICK, SST, TREC6
from zoo.data.synthetic import Dates
from zoo.data.text_pairs import Multi30k, ParallelText, Tatoeba

__all__ = [
    "CBT",
    "COCO",
    "FDUMTL",
    "IMDB",
    "PTB",
    "SICK",
    "SST",
    "TREC6",
    "CBTLike",
    "CaptionPairs",
    "CNNDailyMail",
    "Cloze",
    "Brown",
    "ChildrensBooks",
    "Dates",
    "Flickr30k",
    "Flickr8k",
    "ImageCaptions",
    "LabeledText",
    "Multi30k",
    "NextWord",
    "ParallelText",
    "PlainText",
    "Reuters",
    "Tatoeba",
    "TwentyNewsgroups",
    "WikiText2",
]
