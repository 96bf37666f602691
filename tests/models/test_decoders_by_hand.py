"""The tutorial's decoders and the textbook form of Luong's, word by word as they are written down."""

import pytest
import torch

from zoo.layers.attention import NORMALIZATIONS
from zoo.models.luong import LuongNMT
from zoo.models.tutorial_attention import TutorialAttentionNMT

pytestmark = pytest.mark.usefixtures("float64")


def as_torch(cell, kind):
    """torch's own cell with these parameters."""
    other = kind(cell.weight_input.size(1), cell.hidden_size)
    values = {
        "weight_ih": cell.weight_input,
        "weight_hh": cell.weight_hidden,
        "bias_ih": cell.bias,
        "bias_hh": torch.zeros_like(cell.bias),
    }
    other.load_state_dict(values)
    return other


def parts(model):
    """A model whose every parameter matters, its forward pass, and for each sentence the memory, its last states and
    the words to read.
    """
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape))
    batch, given = model.example_batch(5), []
    tgt = batch.tgt[:, :-1]
    logits, weights = model(batch.src, batch.src_lengths, tgt)
    for n, length in enumerate(batch.src_lengths.tolist()):
        embedded = model.embeddings.scale * model.embeddings.source.weight[batch.src[n : n + 1, :length]]
        memory, finals = model.encoder(embedded, batch.src_lengths[n : n + 1])
        words = model.embeddings.scale * model.embeddings.tgt_table.weight[tgt[n]]
        given.append((memory[0], [x[0] for x in finals[-1]], words[:, None]))
    return logits, weights, given


def same(logits, weights, found_logits, found_weights, n):
    length = found_weights.size(1)
    torch.testing.assert_close(logits[n], found_logits, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(weights[n, :, :length], found_weights, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_tutorial_decoder():
    torch.manual_seed(0)
    model = TutorialAttentionNMT(**TutorialAttentionNMT.tiny).eval()
    logits, weights, given = parts(model)
    cell, w_a, w_c, output = (
        as_torch(model.gru, torch.nn.GRUCell),
        model.attention.score.w_a.weight,
        model.w_c,
        model.embeddings.output,
    )
    for n, (memory, (s,), words) in enumerate(given):
        found_logits, found_weights = [], []
        for word in words:
            both = torch.cat([word[0], s])
            alpha = (w_a @ both)[: len(memory)].softmax(0)
            context = sum(a * h for a, h in zip(alpha, memory))
            x = (w_c.weight @ torch.cat([word[0], context]) + w_c.bias).relu()
            s = cell(x, s)
            found_logits.append(output.weight @ s + output.bias)
            found_weights.append(alpha)
        same(logits, weights, torch.stack(found_logits), torch.stack(found_weights), n)


@torch.no_grad()
def test_tutorial_decoder_without_attention():
    torch.manual_seed(0)
    model = TutorialAttentionNMT(**TutorialAttentionNMT.tiny, attention="none").eval().double()
    logits, weights, given = parts(model)
    assert weights is None and not [
        name for name, _ in model.named_parameters() if "attention" in name or "w_c" in name
    ]
    cell, output = as_torch(model.gru, torch.nn.GRUCell).double(), model.embeddings.output
    for n, (_, (s,), words) in enumerate(given):
        found = []
        for word in words:
            s = cell(word[0].relu(), s)  # x_t = relu(e_t), s_t = GRU(x_t, s_{t-1})
            found.append(output.weight @ s + output.bias)
        torch.testing.assert_close(logits[n], torch.stack(found))


@torch.no_grad()
def test_without_attention_the_tutorial_decoder_reads_a_source_of_any_length():
    model = TutorialAttentionNMT(**{**TutorialAttentionNMT.tiny, "max_length": 2, "attention": "none"}).eval()
    logits, _ = model(torch.randint(4, 12, (2, 9)), torch.tensor([9, 4]), torch.randint(4, 11, (2, 3)))
    assert logits.isfinite().all() and model.max_source_tokens == 1000


def test_a_tutorial_decoder_for_short_sources_has_examples_that_it_can_read(tmp_path):
    model = TutorialAttentionNMT(**{**TutorialAttentionNMT.tiny, "max_length": 4}).eval()
    assert model.example_batch(8).src_lengths.tolist() == [1, 2, 3, 4, 4, 4, 4, 1]  # with the end of the sentence
    model.save_pretrained(tmp_path, golden=True)
    assert (tmp_path / "golden.safetensors").is_file()


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@torch.no_grad()
def test_textbook_form_of_luong(normalize):
    torch.manual_seed(0)
    options = dict(score="dot", normalize=normalize, attentional_state=False, input_feeding=False)
    model = LuongNMT(**{**LuongNMT.tiny, **options}).eval()
    logits, weights, given = parts(model)
    cell, output = as_torch(model.decoder.cells[0], torch.nn.LSTMCell), model.embeddings.output
    for n, (memory, (h, c), words) in enumerate(given):
        found_logits, found_weights = [], []
        for word in words:
            h, c = cell(word[0], (h, c))
            scores = torch.stack([h @ h_s for h_s in memory])
            a = NORMALIZATIONS[normalize](scores, scores.isfinite())
            context = sum(w * h_s for w, h_s in zip(a, memory))
            found_logits.append(output.weight @ torch.cat([context, h]) + output.bias)
            found_weights.append(a)
        same(logits, weights, torch.stack(found_logits), torch.stack(found_weights), n)
