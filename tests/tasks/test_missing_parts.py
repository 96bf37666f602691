"""What a model or a run lacks is said in one line."""

import pytest
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.han import HAN
from zoo.models.lstmn import LSTMNLM
from zoo.models.luong import LuongNMT

NO_TOKENIZER = "^this model has no tokenizer yet; load a pretrained one with zoo.load, or train it on a data module$"


@pytest.mark.parametrize("model_class", [AttentionOverAttentionReader, HAN, LSTMNLM])
def test_a_vocabulary_that_is_not_there(model_class):
    with pytest.raises(ValueError, match=NO_TOKENIZER):
        model_class(**model_class.tiny).vocabulary


def test_the_tokenizers_of_a_translator_that_are_not_there():
    with pytest.raises(ValueError, match=NO_TOKENIZER):
        LuongNMT(**LuongNMT.tiny).tokenizers


def test_a_test_run_without_a_data_module(tmp_path):
    model = HAN(**HAN.tiny)
    trainer = Trainer(default_root_dir=tmp_path, accelerator="cpu", logger=False, enable_progress_bar=False)
    says = r"^this run needs a data module of zoo\.data; give the trainer datamodule=\.\.\., not loaders$"
    with pytest.raises(ValueError, match=says):
        trainer.test(model, DataLoader([model.example_batch(2)], batch_size=None))


def test_a_language_model_that_has_measured_nothing():
    model = LSTMNLM(**LSTMNLM.tiny)
    model.on_validation_epoch_start()
    with pytest.raises(ValueError, match="^there is no text to measure; give validation and test data with a word"):
        model.on_validation_epoch_end()
