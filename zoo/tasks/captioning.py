"""CaptioningModule: what every captioner shares: the image encoder, loss, scores, search and `caption`.

A model fills in the mathematics

    encode(images)     -> memory, state      once an image; memory and state are tuples of tensors
    loss(batch)        -> summed loss, words
    step(tokens, state, memory, t) -> logits, state, weights    one step of a search

Shapes: N images, S pixels a side, L positions (a square, row by row), C channels of the encoder, K captions of an
image, T words.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, overload

import torch
from PIL.Image import Image
from torch import Tensor

from zoo.batches.captioning import CaptionBatch
from zoo.layers.losses import output_losses
from zoo.layers.search import SearchResult, check_search, search
from zoo.results.captioning import Caption
from zoo.tasks.checks import check_assets, check_batch_size, present
from zoo.tasks.confidence import Evidence, log_odds, trusted
from zoo.tasks.evaluation import evaluated
from zoo.tasks.scored import ScoredModule
from zoo.tasks.task import Task
from zoo.tasks.vocabulary import extend_embedding, extend_output
from zoo.text import BOS, EOS, PAD, UNK, Tokenizer
from zoo.vision.backbones import load_backbone, make_backbone, statistics
from zoo.vision.images import ImageTransform, open_image

if TYPE_CHECKING:
    from zoo.metrics import CaptionScores

Memory = TypeVar("Memory", bound=NamedTuple)

MAX_WORDS = 40  # of a caption, EOS included
GOOD_CIDER = 50  # CIDEr-D of a good caption; the maximum is 1,000
KEPT_PIXELS = 1280  # longer side of the image that a result keeps
MAX_IMAGE_SIZE = 1024  # pixels of a side that a model may see; no weight of it says how large it may be
MAX_ROWS = 64  # of positions to attend to

Source = str | os.PathLike | bytes | Image
S = TypeVar("S", bound=Source)


class CaptioningModule(ScoredModule, Generic[Memory]):
    """Base class of the captioners.

    Every subclass has the `__init__` arguments of `required`, which are read from `self.config`; and `embedding`, an
    nn.Embedding, and `output`, an nn.Linear.
    """

    task = Task(
        "captioning", "caption", "image", Caption, "image-to-text", 'model.caption("photo.jpg").text', searches=True
    )
    required = (
        *("vocab_size", "backbone", "layer", "backbone_weights", "encoder_epoch", "image_size", "resize"),
        *("label_smoothing", "beam_size", "length_penalty"),
    )
    embedding: torch.nn.Embedding
    output: torch.nn.Linear
    tokenizer: Tokenizer | None = None
    shown = ("bleu_4", "cider_d")

    def __init__(self):
        super().__init__()
        c = self.config
        if not 0 <= c["label_smoothing"] < 1:
            raise ValueError(f"label_smoothing must be in [0, 1); got {c['label_smoothing']}")
        check_search(c["beam_size"], c["length_penalty"])
        if c["image_size"] > MAX_IMAGE_SIZE:
            raise ValueError(f"image_size must be at most {MAX_IMAGE_SIZE:,} pixels; got {c['image_size']:,}")
        mean, std = statistics(c["backbone"])
        self.transform = ImageTransform(c["image_size"], c["resize"], mean, std)
        self.encoder = make_backbone(c["backbone"], c["layer"])
        with torch.no_grad():
            found = self.encoder.eval()(torch.zeros(1, 3, c["image_size"], c["image_size"]))
        if found.dim() != 4 or found.size(2) != found.size(3):
            got = f"shape {tuple(found.shape)}"
            raise ValueError(
                f"layer {c['layer']!r} of {c['backbone']} must give features (N, channels, rows, rows); got {got}"
            )
        if found.size(2) > MAX_ROWS:
            limit = (
                f"at most {MAX_ROWS} x {MAX_ROWS} are allowed. Cut {c['backbone']} at a later layer than {c['layer']!r}"
            )
            raise ValueError(
                f"images of {c['image_size']} pixels give {found.size(2)} x {found.size(3)} positions; {limit}"
            )
        self.encoder_channels = found.size(1)
        self.encoder.train()
        if c["encoder_epoch"] is None:
            self.encoder.requires_grad_(False)

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ValueError: there is none yet.
        """
        return present(self.tokenizer)

    # ---- filled in by the model ----

    def encode(self, images: Tensor) -> tuple[Memory, tuple[Tensor, ...]]:
        """images (N, 3, S, S) uint8 or features (N, L, C) -> memory of tensors (N, ...), first decoder state of tensors
        (N, ...).
        """
        raise NotImplementedError

    def loss(self, batch: CaptionBatch) -> tuple[Tensor, int]:
        """Summed loss of a batch in nats, and the number of its words."""
        raise NotImplementedError

    def step(
        self, tokens: Tensor, state: tuple[Tensor, ...], memory: Memory, t: int
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Last words (N, K), state (N, K, ...), memory, number of the step -> logits (N, K, V), state, weights (N, K,
        L).
        """
        raise NotImplementedError

    # ---- the image encoder ----

    def features(self, images: Tensor) -> Tensor:
        """What the attention looks at: images (N, 3, S, S) uint8 -> (N, L, C); features are returned as they are."""
        if images.dim() == 3:
            return images.to(self.dtype)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._trains_encoder()):
            pixels = self.transform.normalize(images).to(self.dtype).contiguous(memory_format=torch.channels_last)
            return self.encoder(pixels).flatten(2).transpose(1, 2)

    def _trains_encoder(self) -> bool:
        first = self.config["encoder_epoch"]
        return first is not None and (self._trainer is None or self.current_epoch >= first)

    def feature_key(self) -> str | None:
        """What identifies the features of the encoder while it is frozen in training; None where images are wanted."""
        if self._trains_encoder() or self.trainer.state.fn != "fit":
            return None
        digest = hashlib.sha256()
        for tensor in self.encoder.state_dict().values():
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        c = self.config
        return f"{c['backbone']} {c['layer']} {self.transform.to_json()} {self.trainer.precision} {digest.hexdigest()}"

    def extract_features(self, pixels: Tensor) -> Tensor:
        """Features of images by the frozen encoder, in the precision of the training: (N, 3, S, S) uint8 -> (N, L,
        C).
        """
        with self.trainer.precision_plugin.forward_context():
            return self.features(pixels)

    # ---- training ----

    def forbidden(self) -> list[int]:
        """Tokens that are never written: the special ones but EOS, and rows of the output layer that no word uses."""
        vocab = len(self.tokenizer) if self.tokenizer else self.config["vocab_size"]
        return [PAD, UNK, BOS, *range(vocab, self.config["vocab_size"])]

    def word_losses(self, readouts: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Summed cross-entropy of readouts (P, E) and labels (P,), smoothed in training, and -log p of each label (P,),
        no gradient.
        """
        smoothing = self.config["label_smoothing"] if self.training else 0.0
        return output_losses(self.output, readouts, labels, smoothing)

    def setup(self, stage: str) -> None:
        first = self.config["encoder_epoch"] or 0
        if (
            stage == "fit"
            and 0 < first < (self.trainer.max_epochs or first)
            and self.trainer.reload_dataloaders_every_n_epochs != 1  # pyright: ignore[reportAttributeAccessIssue]
        ):
            raise ValueError(
                f"encoder_epoch {first} changes from features to images during training; set "
                "trainer.reload_dataloaders_every_n_epochs to 1"
            )
        super().setup(stage)

    def adapt(self, data: Any, stage: str) -> None:
        """Takes the vocabulary of a data module: as it is, or the words that it adds to that of a pretrained model."""
        c = self.config
        if self.tokenizer is not None:
            self._take(data.tokenizer)
            return
        if len(data.tokenizer) > c["vocab_size"]:
            raise ValueError(
                f"the data has a vocabulary of {len(data.tokenizer)} words, the model one of {c['vocab_size']}; "
                f"set the model's vocab_size to at least {len(data.tokenizer)}"
            )
        self.tokenizer = data.tokenizer
        if stage == "fit" and (weights := c["backbone_weights"]):
            is_file = weights.endswith(".safetensors")
            load_backbone(self.encoder, c["backbone"], data.locate(weights) if is_file else weights)

    def extend_vocabulary(self, words: Sequence[str]) -> None:
        """Adds words behind the vocabulary; a training teaches their meaning. All else stays as it is, to the bit
        (zoo/tasks/vocabulary.py).

        Args:
            words: single words; those that are there are passed over.

        Raises:
            ValueError: no tokenizer, or a word that is several to it.
        """
        self.check_ready(self.tokenizer)
        self._take(self.vocabulary.extended(words))

    def _take(self, tokenizer: Tokenizer) -> None:
        """Goes over to a tokenizer that is this model's, or this model's with more words."""
        if len(tokenizer) > len(self.vocabulary):
            self._extend(len(self.vocabulary), len(tokenizer))
            self.tokenizer = tokenizer

    def _extend(self, known: int, size: int) -> None:
        extend_embedding(self.embedding, known, size)
        extend_output(self.output, known, size, tied=False)
        self.config["vocab_size"] = len(self.embedding.weight)

    def make_room(self, config: Mapping[str, Any]) -> None:
        if (size := config.get("vocab_size", 0)) > self.config["vocab_size"]:
            self._extend(self.config["vocab_size"], size)

    def training_step(self, batch: CaptionBatch, batch_idx: int) -> Tensor:
        loss, words = self.loss(batch)
        self.log("train/loss", loss.detach() / words, prog_bar=True, batch_size=words)
        return self.normalize_gradient(loss, words)

    def new_scores(self) -> "CaptionScores":
        from zoo.metrics import CaptionScores  # late: torchmetrics takes a second

        return CaptionScores()

    def score(self, batch: CaptionBatch, scores: "CaptionScores", validating: bool) -> tuple[Tensor, int] | None:
        batch = batch._replace(images=self.features(batch.images))  # once for the loss and the search
        loss = self.loss(batch) if validating else None
        found = self._search(batch.images, 1 if validating else self.config["beam_size"], return_attention=False)
        scores.update([self.vocabulary.decode(row) for row in found.tokens[:, 0].tolist()], batch.known_references())
        return loss

    # ---- use ----

    @overload
    def caption(
        self,
        images: Source,
        beam_size: int | None = ...,
        n_best: int = ...,
        length_penalty: float | None = ...,
        no_repeat_ngram: int = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
    ) -> Caption: ...

    @overload
    def caption(
        self,
        images: list[S] | tuple[S, ...],
        beam_size: int | None = ...,
        n_best: int = ...,
        length_penalty: float | None = ...,
        no_repeat_ngram: int = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
    ) -> list[Caption]: ...

    @overload
    def caption(
        self,
        images: Source | Iterable[Source],
        beam_size: int | None = ...,
        n_best: int = ...,
        length_penalty: float | None = ...,
        no_repeat_ngram: int = ...,
        temperature: float | None = ...,
        top_k: int = ...,
        batch_size: int = ...,
    ) -> Caption | list[Caption]: ...

    @evaluated
    def caption(
        self,
        images: Source | Iterable[Source],
        beam_size: int | None = None,
        n_best: int = 1,
        length_penalty: float | None = None,
        no_repeat_ngram: int = 0,
        temperature: float | None = None,
        top_k: int = 0,
        batch_size: int = 32,
    ) -> Caption | list[Caption]:
        """Describes images.

        Args:
            images: a path, a PIL image, the bytes of an image file, or a list of these; any size, mode and orientation.
            beam_size: hypotheses kept; 1 is greedy search. The model's own setting if not given.
            n_best: alternatives in `Caption.n_best`, at most `beam_size`.
            length_penalty: alpha of the length normalisation; the model's own setting if not given.
            no_repeat_ngram: n > 0 forbids repeating any n-gram of words.
            temperature: draw `n_best` captions at random instead of searching; 1 is the model's own distribution.
            top_k: with a temperature: draw each word from the k most probable ones only; 0 from all.
            batch_size: images captioned together.

        Returns:
            One Caption for one image, a list of them for a list, in the order given.

        Raises:
            ImageError: an image cannot be read.
            ValueError: no tokenizer, or an option outside its range.
            TypeError: `images` is something else.
        """
        self.check_ready(self.tokenizer)
        check_batch_size(batch_size)
        one = isinstance(images, (str, os.PathLike, bytes, bytearray, memoryview, Image))
        if not one and not isinstance(images, Iterable):
            raise TypeError(
                f"caption takes an image (a path, bytes or a PIL image) or a list of them; got {type(images).__name__}"
            )
        sources = iter([cast(Source, images)] if one else cast(Iterable[Source], images))
        results: list[Caption] = []
        while group := list(islice(sources, batch_size)):
            results += self._captions(
                [self._seen(source) for source in group],
                self.config["beam_size"] if beam_size is None else beam_size,
                n_best=n_best,
                length_penalty=length_penalty,
                no_repeat_ngram=no_repeat_ngram,
                temperature=temperature,
                top_k=top_k,
            )
        return results[0] if one else results

    def _seen(self, source: Source) -> tuple[Tensor, Image]:
        """The pixels of an image for the model, and a smaller image of the same frame for pictures."""
        image = open_image(source, side=self.transform.size)
        framed = self.transform.framed(image)
        framed.thumbnail((KEPT_PIXELS, KEPT_PIXELS))
        return self.transform.pixels(image), framed

    @torch.no_grad()
    def _captions(self, seen: list[tuple[Tensor, Image]], beam_size: int, **options: Any) -> list[Caption]:
        pixels = torch.stack([pixels for pixels, _ in seen]).to(self.device)
        found = self._search(pixels, beam_size, **options)
        if (weights := found.attn_weights) is None:
            raise ValueError("the model gives no attention weights for its captions; its step must return some")
        side = round(weights.size(-1) ** 0.5)
        captions = []
        for row, (_, image) in enumerate(seen):
            n_best = [
                (self.vocabulary.decode(ids[:length].tolist()), float(score))
                for ids, length, score in zip(found.tokens[row], found.lengths[row], found.scores[row], strict=True)
            ]
            length = int(found.lengths[row, 0])
            caption = Caption(
                *n_best[0],
                tokens=self.vocabulary.tokens(found.tokens[row, 0, :length].tolist()),
                attention=weights[row, 0, :length].unflatten(-1, (side, side)).cpu(),
                n_best=n_best,
                image=image,
            )
            captions.append(trusted(caption, self.calibration, _evidence(found, row)))
        return captions

    @torch.no_grad()
    def _search(
        self, images: Tensor, beam_size: int, length_penalty: float | None = None, **options: Any
    ) -> SearchResult:
        memory, state = self.encode(images)
        state = tuple(x.unsqueeze(1) for x in state)  # (N, 1, ...)
        options["forbid"] = self.forbidden()
        options["max_length"] = MAX_WORDS
        options["length_penalty"] = self.config["length_penalty"] if length_penalty is None else length_penalty
        return search(self.step, state, memory, beam_size=beam_size, **options)

    # ---- calibration ----

    def event(self) -> str:
        return f"the caption has a CIDEr-D of at least {GOOD_CIDER} with human ones"

    def judge(self, batch: CaptionBatch) -> list[tuple[Evidence, Any]]:
        """Captions of the default search, and their references."""
        found = self._search(batch.images, self.config["beam_size"], return_attention=False)
        texts = [self.vocabulary.decode(row) for row in found.tokens[:, 0].tolist()]
        references = batch.known_references()
        return [(_evidence(found, n), pair) for n, pair in enumerate(zip(texts, references, strict=True))]

    def happened(self, outcomes: list[tuple[str, list[str]]]) -> list[bool]:
        from zoo.metrics.captions import CiderD, caption_tokens  # late: torchmetrics takes a second

        captions = [caption_tokens(text) for text, _ in outcomes]
        references = [[caption_tokens(text) for text in texts] for _, texts in outcomes]
        return [100 * score >= GOOD_CIDER for score in CiderD(references).score(captions, references)]

    # ---- bundle and tests ----

    def assets(self) -> dict[str, str]:
        """tokenizer.json and preprocessing.json."""
        if self.tokenizer is None:
            return {}
        return {"tokenizer.json": self.tokenizer.to_json(), "preprocessing.json": self.transform.to_json()}

    def load_assets(self, assets: dict[str, str]) -> None:
        if not assets:
            return
        check_assets(assets, words := "tokenizer.json", pixels := "preprocessing.json")
        self.tokenizer = Tokenizer.from_json(assets[words], self.config["vocab_size"], words)
        transform = ImageTransform.from_json(assets[pixels])
        for name, stored in (("image_size", transform.size), ("resize", transform.resize)):
            if stored != self.config[name] and name not in self.overridden:
                raise ValueError(f"{pixels} has {name} {stored!r}, init_args {self.config[name]!r}")
        self.transform = replace(transform, size=self.config["image_size"], resize=self.config["resize"])

    def example_batch(self, batch_size: int) -> CaptionBatch:
        """Random pixels and words; two captions an image, the second one missing for every third image."""
        generator = torch.Generator().manual_seed(batch_size)
        size, vocab = self.config["image_size"], self.config["vocab_size"]
        images = torch.randint(0, 256, (batch_size, 3, size, size), generator=generator, dtype=torch.uint8)
        lengths = torch.tensor([[1 + n % 4, 0 if n % 3 == 2 else 1 + (n + 2) % 5] for n in range(batch_size)])
        captions = torch.randint(EOS + 1, vocab, (batch_size, 2, 6), generator=generator)
        position = torch.arange(6)
        captions = captions.masked_fill(position == lengths.unsqueeze(-1), EOS).masked_fill(
            position > lengths.unsqueeze(-1), PAD
        )
        captions[..., 0] = torch.where(lengths > 0, BOS, PAD)
        return CaptionBatch(images, captions, lengths)

    @evaluated
    def golden(self) -> dict[str, Tensor]:
        """About a hundred columns of the logits of a fixed batch, and the beam search's output for it."""
        batch = self.example_batch(3)
        with torch.random.fork_rng(devices=[]):  # hard attention may draw where it looks
            torch.manual_seed(0)
            logits, _ = self(batch.images, batch.captions[..., :-1])
            found = self._search(batch.images, self.config["beam_size"])
        logits = logits[..., :: max(1, logits.size(-1) // 100)].contiguous()
        return {"images": batch.images, "captions": batch.captions, "logits": logits, "tokens": found.tokens}


def _evidence(found: SearchResult, row: int) -> Evidence:
    """What a search tells about its best output: the log-odds of its mean word."""
    score = log_odds(float(found.log_probs[row, 0]) / max(1, int(found.lengths[row, 0])))
    cut = EOS not in found.tokens[row, 0].tolist()
    return Evidence({"score": score}, notes=("the caption was cut at its maximum length",) * cut)
