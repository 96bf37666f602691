"""Translates with the graphs of `zoo export --format onnx`: greedy and beam search around one step of the decoder.

Needs onnxruntime, numpy and tokenizers; neither torch nor zoo.

    zoo export luong_general.multi30k_en_de graphs --format onnx
    python examples/onnx_translate.py graphs "A dog runs in the snow." "Two men play music." --beam-size 5
"""

import argparse
import json
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession, SessionOptions
from tokenizers import Tokenizer


class Translator:
    """One sentence at a time; the graphs themselves take many (their axis "batch")."""

    def __init__(self, folder: str) -> None:
        path, sessions, options = Path(folder), [], SessionOptions()
        about = json.loads((path / "onnx.json").read_text(encoding="utf-8"))
        for name, value in about["session"].items():  # graphs of --int8 need an option
            options.add_session_config_entry(name, value)
        for name in ("encoder.onnx", "step.onnx"):
            sessions.append(InferenceSession(path / name, options, providers=["CPUExecutionProvider"]))
        self.encoder, self.step = sessions
        names = (
            ["tokenizer.json"] * 2
            if (path / "tokenizer.json").exists()
            else ["tokenizer.src.json", "tokenizer.tgt.json"]
        )
        self.source, self.target = (Tokenizer.from_file(str(path / name)) for name in names)
        self.memory, self.state, self.search = about["memory"], about["state"], about["search"]
        self.bos, self.eos = about["special_tokens"]["bos"], about["special_tokens"]["eos"]

    def translate(self, text: str, beam_size: int | None = None) -> tuple[str, float]:
        """The translation of a sentence and its score, the log-probability divided by a power of the length."""
        ids = self.source.encode(" ".join(text.split()), add_special_tokens=False).ids
        if not ids:
            return "", 0.0
        if len(ids) > (most := self.search["max_source_tokens"]):
            raise ValueError(f"the text has {len(ids):,} tokens; at most {most:,} are allowed. Split it into sentences")
        ids.append(self.eos)
        limit, size = self.search["max_length"], beam_size or self.search["beam_size"]
        limit = int(len(ids) * limit["per_source_token"]) + limit["more"]
        tokens, score = self.greedy(ids, limit) if size == 1 else self.beam(ids, limit, size)
        return self.target.decode(tokens).strip(), float(score)

    def encode(self, ids: list[int]) -> tuple[dict, dict]:
        """Memory and first state of a sentence."""
        found = run(self.encoder, {"tokens": np.array([ids]), "lengths": np.array([len(ids)])})
        memory = {name: found[name] for name in self.memory}
        memory["given_attention"] = np.zeros((1, 1, len(ids)), np.float32)  # none is given: the model decides
        return memory, {name: found[name] for name in self.state}

    def advance(self, tokens: list[int], t: int, memory: dict, state: dict) -> tuple[np.ndarray, dict]:
        """Log-probabilities (hypotheses, vocabulary) of what follows the last tokens, and the next state."""
        values = {"tokens": np.array([tokens]), "position": np.array(t), **memory, **state}
        values["given_attention"] = memory["given_attention"].repeat(len(tokens), axis=1)
        found = run(self.step, values)
        found["log_probs"][..., self.search["never"]] = -np.inf
        return found["log_probs"][0], {name: found[after] for name, after in self.state.items()}

    def norm(self, length: int) -> float:
        return ((5 + length) / 6) ** self.search["length_penalty"]

    def greedy(self, ids: list[int], limit: int) -> tuple[list[int], float]:
        """The most probable token at every step."""
        (memory, state), tokens, total = self.encode(ids), [self.bos], 0.0
        while len(tokens) <= limit and tokens[-1] != self.eos:
            log_probs, state = self.advance(tokens[-1:], len(tokens) - 1, memory, state)
            tokens.append(int(log_probs[0].argmax()))
            total += log_probs[0, tokens[-1]]
        return [token for token in tokens[1:] if token != self.eos], total / self.norm(len(tokens) - 1)

    def beam(self, ids: list[int], limit: int, size: int) -> tuple[list[int], float]:
        """The best of all hypotheses that a beam of `size` ever finishes."""
        (memory, state), live, totals, best = self.encode(ids), [[self.bos]], np.zeros(1, np.float32), ([], -np.inf)
        for t in range(limit):
            log_probs, state = self.advance([tokens[-1] for tokens in live], t, memory, state)
            values, kept = (totals[:, None] + log_probs).ravel(), []
            top = np.argpartition(-values, min(2 * size, len(values) - 1))[: 2 * size]
            for n in top[np.argsort(-values[top])]:
                (parent, token), score = divmod(int(n), log_probs.shape[1]), values[n] / self.norm(t + 1)
                if (token == self.eos or t + 1 == limit) and score > best[1]:
                    best = [x for x in [*live[parent][1:], token] if x != self.eos], score
                if token != self.eos and len(kept) < size:
                    kept.append((parent, token, values[n]))
            if kept[0][2] / max(self.norm(limit), self.norm(t + 2)) <= best[1]:
                break  # nothing longer can be better
            live, totals = (
                [[*live[parent], token] for parent, token, _ in kept],
                np.array([value for *_, value in kept]),
            )
            state = {name: x[:, [parent for parent, *_ in kept]] for name, x in state.items()}
        return best


def run(session: InferenceSession, values: dict) -> dict:
    """Outputs by name."""
    found = session.run(None, {value.name: values[value.name] for value in session.get_inputs()})
    return {value.name: x for value, x in zip(session.get_outputs(), found)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--beam-size", type=int)
    options = parser.parse_args()
    if not Path(options.folder, "onnx.json").is_file():
        parser.error(
            f"{options.folder} holds no onnx.json: give the folder that `zoo export NAME FOLDER --format onnx` wrote"
        )
    if options.beam_size is not None and options.beam_size < 1:
        parser.error(f"--beam-size must be at least 1; got {options.beam_size}")
    try:
        translator = Translator(options.folder)
        for text in options.texts:
            print("{}\t{:.4f}".format(*translator.translate(text, options.beam_size)))
    except (ValueError, OSError) as error:
        parser.error(str(error))
