"""CaptioningModule: what every captioner shares: the image encoder, loss, scores and search; its verb is in zoo/verbs.

A model fills in the mathematics

    encode(images)     -> memory, state      once an image; memory and state are tuples of tensors
    loss(batch)        -> summed loss, words
    step(tokens, state, memory, t, given) -> logits, state, weights    one step of a search

Shapes: N images, S pixels a side, L positions (a square, row by row), C channels of the encoder, K captions of an
image, T words.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from zoo.batches.captioning import CaptionBatch
from zoo.batches.devices import on
from zoo.layers.losses import output_losses
from zoo.layers.search import SearchResult, check_search, search
from zoo.tasks.given import following
from zoo.tasks.scored import ScoredModule
from zoo.tasks.vocabulary import check_fits, extend_embedding, extend_output
from zoo.text import BOS, EOS, PAD, UNK, Tokenizer
from zoo.verbs.base import evaluated
from zoo.verbs.captioning import MAX_WORDS, Captioner, evidence_of
from zoo.verbs.confidence import Evidence
from zoo.vision.backbones import features_shape, load_backbone, make_backbone, statistics
from zoo.vision.images import ImageTransform

if TYPE_CHECKING:
    from zoo.metrics import CaptionScores

Memory = TypeVar("Memory", bound=NamedTuple)

GOOD_CIDER = 50  # CIDEr-D of a good caption; the maximum is 1,000
MAX_IMAGE_SIZE = 1024  # pixels of a side that a model may see; no weight of it says how large it may be
MAX_ROWS = 64  # of positions to attend to


class CaptioningModule(Captioner, ScoredModule, Generic[Memory]):
    """Base class of the captioners.

    Every subclass has the `__init__` arguments of `required`, which are read from `self.config`; and `embedding`, an
    nn.Embedding, and `output`, an nn.Linear.
    """

    required = (
        *("vocab_size", "backbone", "layer", "backbone_weights", "encoder_epoch", "image_size", "resize"),
        *("label_smoothing", "beam_size", "length_penalty"),
    )
    methods = ("encode", "loss", "step")
    embedding: torch.nn.Embedding
    output: torch.nn.Linear
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
        shape = features_shape(self.encoder, c["image_size"])
        if len(shape) != 4 or shape[2] != shape[3]:
            raise ValueError(
                f"layer {c['layer']!r} of {c['backbone']} must give features (N, channels, rows, rows); got shape "
                f"{shape}"
            )
        _, self.encoder_channels, rows, _ = shape
        if rows > MAX_ROWS:
            limit = (
                f"at most {MAX_ROWS} x {MAX_ROWS} are allowed. Cut {c['backbone']} at a later layer than {c['layer']!r}"
            )
            raise ValueError(f"images of {c['image_size']} pixels give {rows} x {rows} positions; {limit}")
        self.cells = rows * rows
        self.encoder.train()
        if c["encoder_epoch"] is None:
            self.encoder.requires_grad_(False)

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

        One more argument, `given: Tensor | None = None`, has weights (N, K, L) that replace the model's own, where a
        row is not all zeros (`zoo.layers.attention.replaced`).
        """
        raise NotImplementedError

    def forward(self, images: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
        """Teacher forcing, step by step; a model may have a faster one.

        Args:
            images: (N, 3, S, S) uint8, or features (N, L, C).
            captions: (N, K, T) decoder inputs of K captions each, BOS first.

        Returns:
            logits (N, K, T, V) and attention weights (N, K, T, L).
        """
        memory, state = self.encode(images)
        state = tuple(x.unsqueeze(1).expand(-1, captions.size(1), *x.shape[1:]) for x in state)
        steps = []
        for t, tokens in enumerate(captions.unbind(2)):
            logits, state, weights = self.step(tokens, state, memory, t)
            steps.append((logits, weights))
        logits, weights = (torch.stack(x, dim=2) for x in zip(*steps, strict=True))
        return logits, weights

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
        check_fits(data.tokenizer, c["vocab_size"])
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
        self.log("train/loss", loss.detach() / max(words, 1), prog_bar=True, batch_size=max(words, 1))
        return self.normalize_gradient(loss, words)

    def new_scores(self) -> "CaptionScores":
        from zoo.metrics import CaptionScores  # late: torchmetrics takes a second

        return CaptionScores()

    def new_test_scores(self) -> "CaptionScores":
        from zoo.metrics.captions import CaptionScores, has_meteor

        return CaptionScores(with_meteor=has_meteor())

    def score(self, batch: CaptionBatch, scores: "CaptionScores", validating: bool) -> tuple[Tensor, int] | None:
        batch = batch._replace(images=self.features(batch.images))  # once for the loss and the search
        loss = self.loss(batch) if validating else None
        found = self._search(batch.images, *self.searched_by(validating), return_attention=False)
        scores.update([self.vocabulary.decode(row) for row in found.tokens[:, 0].tolist()], batch.known_references())
        return loss

    # ---- use: what the verb `caption` computes ----

    def predict_batch(self, batch: CaptionBatch) -> list[str]:
        """Captions of the default search."""
        found = self._search(batch.images, self.config["beam_size"], return_attention=False)
        return [self.vocabulary.decode(row) for row in found.tokens[:, 0].tolist()]

    def hypotheses(self, pixels: Sequence[np.ndarray], beam_size: int, **options: Any) -> SearchResult:
        images = torch.from_numpy(np.stack(pixels)).to(self.device)
        return self._search(images, beam_size, **options).cpu()

    @torch.no_grad()
    def _search(
        self,
        images: Tensor,
        beam_size: int,
        length_penalty: float | None = None,
        given: np.ndarray | None = None,
        **options: Any,
    ) -> SearchResult:
        memory, state = self.encode(images)
        step = self.step if given is None else following(self.step)
        seen = memory if given is None else (memory, torch.from_numpy(given).to(images.device))
        state = tuple(x.unsqueeze(1) for x in state)  # (N, 1, ...)
        options["forbid"] = self.forbidden()
        options["max_length"] = MAX_WORDS
        options["length_penalty"] = self.config["length_penalty"] if length_penalty is None else length_penalty
        return search(step, state, seen, beam_size=beam_size, **options)

    # ---- calibration ----

    def event(self) -> str:
        return f"the caption has a CIDEr-D of at least {GOOD_CIDER} with human ones"

    def judge(self, batch: CaptionBatch) -> list[tuple[Evidence, Any]]:
        """Captions of the default search, and their references."""
        found = self._search(batch.images, self.config["beam_size"], return_attention=False)
        texts = [self.vocabulary.decode(row) for row in found.tokens[:, 0].tolist()]
        references = batch.known_references()
        return [(evidence_of(found, n), pair) for n, pair in enumerate(zip(texts, references, strict=True))]

    def happened(self, outcomes: list[tuple[str, list[str]]]) -> list[bool]:
        from zoo.metrics.captions import CiderD, caption_tokens  # late: torchmetrics takes a second

        captions = [caption_tokens(text) for text, _ in outcomes]
        references = [[caption_tokens(text) for text in texts] for _, texts in outcomes]
        return [100 * score >= GOOD_CIDER for score in CiderD(references).score(captions, references)]

    # ---- bundle and tests ----

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
        """Of a fixed batch: some pixels, about a hundred columns of the logits, and what the beam search finds."""
        batch = on(self.device, self.example_batch(3))
        with torch.random.fork_rng(devices=[]):  # hard attention may draw where it looks
            torch.manual_seed(0)
            logits, _ = self(batch.images, batch.captions[..., :-1])
            found = self._search(batch.images, self.config["beam_size"])
        logits = logits[..., :: max(1, logits.size(-1) // 100)].contiguous()
        pixels = batch.images[..., ::16, ::16].contiguous()
        return {"images": pixels, "captions": batch.captions, "logits": logits, "tokens": found.tokens}
