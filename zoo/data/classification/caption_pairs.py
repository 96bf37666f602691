"""Do two captions describe the same photo? Pairs of texts from the captions of Flickr8k."""

import random
from collections.abc import Iterator

from zoo.data.captioning.photos import Flickr8k
from zoo.data.classification.arrays import Example
from zoo.data.classification.base import LabeledOptions
from zoo.data.classification.published import PublishedTexts
from zoo.data.common.base import Split
from zoo.utils.numbers_given import check_at_least
from zoo.utils.unpack import Unpack


class _FlickrCaptions(PublishedTexts):
    """Texts read from the files of `Flickr8k`; no image is needed."""

    folder = Flickr8k.folder
    places = Flickr8k.places
    upstream = "the captions of Flickr8k (Hodosh et al. 2013)"

    def __init__(self, **options: Unpack[LabeledOptions]) -> None:
        super().__init__(**options)
        self._photos = Flickr8k(root=self.root, cache_dir=str(self.cache))

    def files(self, split: Split) -> list[str]:
        authors = self._find("Flickr8k.token.txt") and not self._find("captions.tsv")
        return self._photos.files(split) if authors else ["captions.tsv"]

    def captions(self, split: Split) -> list[list[str]]:
        """The captions of each photo."""
        return [list(record.captions) for record in self._photos.records(split)]

    def _advice(self, name: str) -> str:
        return (
            "captions.tsv, or the authors' Flickr8k.token.txt with Flickr_8k.trainImages.txt and so on; "
            "see zoo.data.Flickr8k"
        )


class _Captions(_FlickrCaptions):
    """Each caption once."""

    known_labels = ("caption",)

    def examples(self, split: Split) -> Iterator[Example]:
        return (Example(caption, None, ("caption",)) for captions in self.captions(split) for caption in captions)


class CaptionPairs(_FlickrCaptions):
    """Pairs of Flickr8k captions, of the same or of different photos: 60,000 / 10,000 / 10,000, half of each label.

    Each caption occurs once with another caption of its photo and once with a caption of another photo of its split. No
    image is read. A model that separates these pairs has learnt paraphrases: a first training stage for `SICK`.

    Vocabulary and word2vec are learnt from each caption once.

    Args:
        draws: number of times that each training caption occurs, each time with other partners; those of its own photo
            in turn.
        draw_seed: selects the partners.
        **options: see `LabeledData`.
    """

    pair = True
    known_labels = ("different", "same")

    def __init__(self, draws: int = 1, draw_seed: int = 0, **options: Unpack[LabeledOptions]) -> None:
        super().__init__(**options)
        check_at_least(draws=(draws, 1))
        self.draws, self.draw_seed = draws, draw_seed

    def once(self) -> _Captions:
        return _Captions(root=self.root, cache_dir=str(self.cache), max_words=self.max_words)

    def signature(self, split: Split) -> list[object]:
        return [*super().signature(split), self.draws if split == "train" else 1, self.draw_seed]

    def examples(self, split: Split) -> Iterator[Example]:
        photos = [captions for captions in self.captions(split) if len(captions) > 1]
        if len(photos) < 2:
            raise ValueError(
                f"{self.source(split)}: two {split} photos with two captions or more are needed; got {len(photos)}"
            )
        rng = random.Random(f"{split} {self.draw_seed}")
        for captions in photos:
            rng.shuffle(captions)
        for draw in range(self.draws if split == "train" else 1):
            for number, captions in enumerate(photos):
                step = 1 + draw % (len(captions) - 1)
                for place, caption in enumerate(captions):
                    other = photos[(number + rng.randrange(1, len(photos))) % len(photos)]
                    yield Example(caption, captions[(place + step) % len(captions)], ("same",))
                    yield Example(caption, rng.choice(other), ("different",))
