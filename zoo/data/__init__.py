"""Lightning data modules, one class per data set."""

from zoo.data.captioning.photos import COCO, Flickr8k, Flickr30k, ImageCaptions
from zoo.data.classification.caption_pairs import CaptionPairs
from zoo.data.classification.documents import FDUMTL, IMDB, LabeledText, Reuters, TwentyNewsgroups
from zoo.data.classification.next_word import NextWord
from zoo.data.classification.sentences import SICK, SST, TREC6
from zoo.data.language_modelling.plain_text import PTB, Brown, ChildrensBooks, PlainText, WikiText2
from zoo.data.reading.childrens_books import CBT, CBTLike
from zoo.data.reading.cnn_dailymail import CNNDailyMail
from zoo.data.reading.own import Cloze
from zoo.data.translation.dates import Dates
from zoo.data.translation.parallel_text import Multi30k, ParallelText, Tatoeba

__all__ = [
    "CBT",
    "COCO",
    "FDUMTL",
    "IMDB",
    "PTB",
    "SICK",
    "SST",
    "TREC6",
    "Brown",
    "CBTLike",
    "CNNDailyMail",
    "CaptionPairs",
    "ChildrensBooks",
    "Cloze",
    "Dates",
    "Flickr8k",
    "Flickr30k",
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
