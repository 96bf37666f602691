"""Lightning data modules, one class a data set."""

from zoo.data.captions import COCO, Flickr8k, Flickr30k, ImageCaptions
from zoo.data.documents import IMDB, LabeledText, Reuters, TwentyNewsgroups
from zoo.data.next_word import NextWord
from zoo.data.sentences import SICK, SST, TREC6
from zoo.data.synthetic import Dates
from zoo.data.text_pairs import Multi30k, ParallelText, Tatoeba

__all__ = [
    "COCO",
    "IMDB",
    "SICK",
    "SST",
    "TREC6",
    "Dates",
    "Flickr30k",
    "Flickr8k",
    "ImageCaptions",
    "LabeledText",
    "Multi30k",
    "NextWord",
    "ParallelText",
    "Reuters",
    "Tatoeba",
    "TwentyNewsgroups",
]
