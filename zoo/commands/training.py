"""`zoo fit|validate|test|calibrate`: the help, and what is checked before Lightning is imported."""

import re

from zoo.commands.evaluating import EVALUATES, expanded
from zoo.utils.allocator import keep_freed_memory

TRAINING_HELP = """\
usage: zoo {verb} {first} [--SETTING VALUE ...]

{what}

{named}  --config RECIPE       a file, or a name of `zoo recipes`; several are merged, later ones win. A recipe is code: it may name
                        any class of any installed package with any arguments, so use only recipes that you have read or
                        whose author you trust
  --import MODULE       first import a module of your own, e.g. one with scores and models (docs/guides/own_mechanism.md)
  --weights NAME        start from a pretrained weight (zoo list) instead of the recipe's untrained model
  --ckpt_path PATH      {ckpt}
  --seed_everything N   seed (default 0)
  --trainer.KEY VALUE   e.g. --trainer.max_epochs 5 --trainer.precision bf16-mixed --trainer.devices 2
  --model.KEY VALUE     an argument of the recipe's model, e.g. --model.dropout 0.3
  --optimizer.KEY VALUE, --lr_scheduler.KEY VALUE
                        e.g. --optimizer.lr 0.0005 --lr_scheduler.warmup_steps 100
  --data.KEY VALUE      an argument of the recipe's data, e.g. --data.root /data/multi30k
{some}  --log tensorboard     also log for TensorBoard (or wandb: Weights & Biases), into the folder of the run
  --print_config        print the complete configuration and stop
  --help-all            every setting of the trainer

{where}

example:
  {example}
"""
CACHE = """\
  --cache.KEY VALUE     language models: perplexity also with a continuous cache, e.g. --cache.size 2000 --cache.half_life 200
                        --cache.share 0.13
"""
SCORES = """\
  --precision bf16      compute the scores in bf16, faster where the processor or GPU has it (default: fp32)
  --search.KEY VALUE    translations and captions: --search.beam_size 5, --search.length_penalty 1.2 (default: those of the
                        model; validation searches greedily)
"""
NAMED = """\
  NAME                  a weight (zoo list) or a folder of weights: by its own recipe and, for a test, next to the scores of
                        its card; without it give --config
"""
TRAINING = {
    "fit": dict(
        what="Train the model of a recipe, with validation after each epoch.",
        ckpt="checkpoint to resume from; `last`: the latest of this recipe",
        example="zoo fit --config luong_dot.dates\n"
        "  zoo fit --config luong_dot.dates --ckpt_path last     # resume after an interruption",
    ),
    "validate": dict(
        what="Compute the validation metrics.",
        ckpt="checkpoint to evaluate; `best` or `last` of this recipe",
        example="zoo validate luong_dot.dates\n  zoo validate --config luong_dot.dates --ckpt_path best",
    ),
    "test": dict(
        what="Compute the test metrics, e.g. those on a card.",
        ckpt="checkpoint to evaluate; `best` or `last` of this recipe",
        example="zoo test luong_general.multi30k_de_en --data.root DATA\n"
        "  zoo test --config luong_dot.dates --ckpt_path best",
    ),
    "calibrate": dict(
        what="Measure on the validation data how far the answers of a weight can be trusted, and save that with it.",
        ckpt="not for this command: export the checkpoint first",
        example="zoo export luong_dot.dates my_weights\n"
        "  zoo calibrate --config recipes/luong_dot.dates.yaml --weights local-dir:my_weights",
    ),
}


def completions() -> dict[str, dict[str, str]]:
    """Verb -> options and what they do, for the shell."""
    found = {}
    for verb in TRAINING:
        text = TRAINING_HELP.replace("{some}", _some(verb)).replace("{named}", "")
        told = re.findall(r"(?<!\S)--[\w.]+(?= )", text)  # of those with a KEY what is before it
        about = dict(re.findall(r"^  (--[\w.]+)(?: \w+)* {2,}([^;\n]+)", text, re.MULTILINE))
        about["--ckpt_path"] = "a checkpoint"
        found[verb] = {option.removesuffix("KEY"): about.get(option, "") for option in told}
    return found


def _some(verb: str) -> str:
    """Lines of the help about options that not all verbs have."""
    return SCORES * (verb in ("validate", "test")) + CACHE * (verb != "calibrate")


def _where(verb: str) -> str:
    """What the command writes."""
    if verb == "calibrate":
        return "calibration.json goes into the folder of the weights."
    return "Checkpoints (the best and the last), metrics.csv and learning_curves.png go to runs/<name of the recipe>/."


def train(args: list[str]) -> None:
    """Trains or evaluates by a recipe; the arguments begin with the verb."""
    verb = args[0]
    if {"-h", "--help"} & set(args):
        first, named = ("NAME | --config RECIPE", NAMED) if verb in EVALUATES else ("--config RECIPE", "")
        texts = {**TRAINING[verb], "first": first, "named": named, "some": _some(verb), "where": _where(verb)}
        print(TRAINING_HELP.format(verb=verb, **texts))
        return
    args, card = expanded(typed := args)
    given = {arg.partition("=")[0] for arg in args}
    if not given & {"--config", "--help-all"} and not given >= {"--model", "--data"}:
        example = TRAINING[verb]["example"].partition("\n")[0]
        wanted = "the name of a weight, or --config RECIPE" if verb in EVALUATES else "--config RECIPE"
        raise ValueError(f"zoo {verb} needs {wanted}, e.g. {example}")
    for option, value in zip(args, [*args[1:], ""]):
        if option.startswith("--config"):
            file = option.partition("=")[2] or value
            if "://" in file:
                raise ValueError(
                    f"--config {file}: a recipe is code and is read from this machine only; download it and read it "
                    "first"
                )
    from zoo.commands.recipes import located

    found = located(["--help" if arg == "--help-all" else arg for arg in args])
    keep_freed_memory()
    if verb == "calibrate":
        from zoo.training.calibration import calibrate

        calibrate(found, typed)
        return
    from zoo.training.card_scores import CardScores
    from zoo.training.lightning_cli import run

    run(found, typed, [CardScores(card)] if card else [])
