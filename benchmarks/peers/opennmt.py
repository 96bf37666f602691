"""OpenNMT-py's side of `translation.py --peers`: trains and decodes, then prints one JSON line.

Runs in an environment with OpenNMT-py 3.5.1 and without this package. Its only argument is the JSON that translation.py
gives to both sides. The step's time includes loading and the optimiser, as for a user.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path

os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # it predates that default, and reads only its own checkpoint
warnings.filterwarnings("ignore")

import onmt.bin.train  # noqa: E402
import onmt.bin.translate  # noqa: E402
import onmt.trainer  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  # the first optimiser would import it: 150 MB that are not the training's
import yaml  # noqa: E402
from onmt.translate.translator import Translator  # noqa: E402

seconds, tokens, decoding = [], [], []


def high_water() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def timed_step(self, batches, *rest, _step=onmt.trainer.Trainer._gradient_accumulation, **options):
    seconds.append(time.process_time())
    tokens.append(sum(int((batch["tgt"][:, 1:, 0] != self.train_loss.padding_idx).sum()) for batch in batches))
    return _step(self, batches, *rest, **options)


def timed_translation(self, *rest, _translate=Translator._translate, **options):
    start = time.process_time()
    found = _translate(self, *rest, **options)
    decoding.append(time.process_time() - start)
    return found


def main() -> None:
    given, imported = json.loads(sys.argv[1]), high_water()
    folder, skipped = Path(given["folder"]), 5
    torch.set_num_threads(given["threads"])
    onmt.trainer.Trainer._gradient_accumulation, Translator._translate = timed_step, timed_translation
    pair = dict(path_src=str(folder / "src"), path_tgt=str(folder / "tgt"), transforms=[])
    settings = dict(
        data={"corpus_1": {**pair, "weight": 1}, "valid": pair},
        src_vocab=str(folder / "vocabulary"),
        tgt_vocab=str(folder / "vocabulary"),
        src_vocab_size=given["vocabulary"],
        tgt_vocab_size=given["vocabulary"],
        encoder_type="brnn",
        decoder_type="rnn",
        rnn_type="LSTM",
        enc_layers=given["layers"],
        dec_layers=1,
        hidden_size=given["hidden"],
        word_vec_size=given["embedding"],
        global_attention="general",
        input_feed=1,
        dropout=[given["dropout"]],
        optim="adam",
        learning_rate=0.001,
        max_grad_norm=5,
        batch_type="sents",
        batch_size=given["batch"],
        normalization="tokens",
        bucket_size=given["batch"] * 100,
        num_workers=0,
        train_steps=given["steps"],
        valid_steps=10**9,
        save_checkpoint_steps=given["steps"],
        report_every=10**6,
        save_model=str(folder / "model"),
        seed=42,
    )
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    options, _ = onmt.bin.train._get_parser().parse_known_args(["-config", str(folder / "settings.yaml")])
    onmt.bin.train.train(options)
    found = {
        "train": sum(tokens[skipped:-1]) / (seconds[-1] - seconds[skipped]),
        "memory": high_water(),
        "grown": high_water() - imported,
    }
    torch.set_num_threads(given["threads"])
    sentences = len((folder / "src").read_text(encoding="utf-8").splitlines())
    for name, beam in (("greedy", 1), ("beam", 5)):
        arguments = dict(model=folder / f"model_step_{given['steps']}.pt", src=folder / "src", output=folder / name)
        arguments |= dict(beam_size=beam, batch_size=given["batch"], batch_type="sents", gpu=-1, max_length_ratio=0)
        arguments |= dict(min_length=given["written"], max_length=given["written"])
        words = [word for key, value in arguments.items() for word in (f"-{key}", str(value))]
        onmt.bin.translate.translate(onmt.bin.translate._get_parser().parse_args(words))
        found[name] = sentences / decoding[-1]
    print(json.dumps(found))


main()
