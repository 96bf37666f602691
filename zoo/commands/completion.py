"""`zoo completion bash|zsh|fish`: a script for the shell, which completes verbs, options and names.

The script holds the names of now and starts no Python, so that it answers at once.
"""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zoo import registry
from zoo.commands.recipes import shipped_recipes

WEIGHTS = (
    "align",
    "demo",
    "download",
    "explain",
    "export",
    "info",
    "predict",
    "publish",
    "rebuild",
    "serve",
    "test",
    "validate",
)  # verbs that take a weight
BASH = """\
# Completion of zoo in bash. For this shell:  eval "$(zoo completion bash)"
_zoo() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {verbs} -- "$word"))
        return
    fi
    case $verb:$before in
{values}
    esac
    if [ -z "$words" ]; then
        case $word in
        -*) case $verb in
{options}
            esac ;;
        *)  [ "$COMP_CWORD" -eq 2 ] && case $verb in
{names}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    case ${{#COMPREPLY[@]}}:$before:$word in
        *:*:-*) ;;
        0:* | *:--config:* | *:--ckpt_path:*) COMPREPLY+=($(compgen -f -- "$word")) ;;
    esac
}}
complete -o filenames -F _zoo zoo
"""
ZSH = """\
# Completion of zoo in zsh, by that of bash. For this shell:  eval "$(zoo completion zsh)"
autoload -U +X compinit && compinit
autoload -U +X bashcompinit && bashcompinit
"""


@dataclass
class Words:
    """What may follow.

    Attributes:
        options: verb -> options.
        values: (verb, option) -> what an option takes; or (verb, name) -> what may follow that name.
        names: verb -> what may follow it first.
        about: verb, or (verb, option) -> what it does, in one line; fish shows it.
    """

    options: dict[str, list[str]] = field(default_factory=dict)
    values: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    about: dict[str | tuple[str, str], str] = field(default_factory=dict)


def run(shell: str, parser: argparse.ArgumentParser, training: Mapping[str, Mapping[str, str]]) -> None:
    """Prints the script of a shell.

    Args:
        shell: bash, zsh or fish.
        parser: of all commands.
        training: verb -> options of the commands that argparse does not parse, and what they do.
    """
    words = _words(parser, training)
    print(_fish(words) if shell == "fish" else ZSH * (shell == "zsh") + _bash(words), end="")


def _words(parser: argparse.ArgumentParser, training: Mapping[str, Mapping[str, str]]) -> Words:
    weights, recipes = registry.list_models(), [*shipped_recipes()]
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    found = Words()
    found.about |= {choice.dest: choice.help or "" for choice in commands._choices_actions}
    for verb, command in commands.choices.items():
        found.options[verb] = [option for option in command._option_string_actions if option.startswith("--")]
        for action in command._actions:
            text = (action.help or "") % {"default": action.default}
            found.about |= {(verb, option): text for option in action.option_strings}
            if action.choices and action.option_strings:
                found.values |= {(verb, option): [*map(str, action.choices)] for option in action.option_strings}
            elif action.choices:
                found.names[verb] = [*map(str, action.choices)]
    found.names |= dict.fromkeys(WEIGHTS, weights) | {"recipes": recipes}
    found.names["download"] = [*weights, "all"]
    found.values["cache", "clear"] = weights
    for verb, options in training.items():
        plain = [recipe for recipe in recipes if "/" not in recipe]
        found.options[verb] = [*options]
        found.about |= {(verb, option): text for option, text in options.items()}
        found.values |= {(verb, "--config"): plain, (verb, "--weights"): weights}
        found.values |= {(verb, "--ckpt_path"): ["last", "best"], (verb, "--log"): ["tensorboard", "wandb"]}
    return found


def _bash(words: Words) -> str:
    values = {f"{verb}:{option}": of for (verb, option), of in words.values.items()}
    parts = {"values": _cases(values), "options": _cases(words.options), "names": _cases(words.names)}
    return BASH.format(verbs=_quoted([*words.options]), **parts)


def _cases(words: dict[str, list[str]]) -> str:
    """The cases of a `case`, each list of words once."""
    patterns: dict[str, list[str]] = {}
    for pattern, of in words.items():
        patterns.setdefault(_quoted(of), []).append(pattern)
    return "\n".join(f"        {'|'.join(same)}) words={of} ;;" for of, same in patterns.items())


def _fish(words: Words) -> str:
    lines = ["# Completion of zoo in fish. For this shell:  zoo completion fish | source"]
    for verb, options in words.options.items():
        lines.append(f"complete -c zoo -n __fish_use_subcommand -f -a {verb}{_described(words.about[verb])}")
        here = f"complete -c zoo -n '__fish_seen_subcommand_from {verb}'"
        for option in options:
            values = words.values.get((verb, option))
            takes = f" -r -a {_quoted(values)}" if values else ""
            about = _described(words.about[verb, option])
            lines.append(f"{here} -l {option.removeprefix('--')}{takes}{about}")
        if names := words.names.get(verb):
            later = [word for name in names for word in words.values.get((verb, name), [])]
            lines.append(f"{here} -a {_quoted([*names, *later])}")
    return "\n".join([*lines, ""])


def _described(text: str) -> str:
    """Fish's option for a description; none if there is nothing to say, which fish would show as an empty one."""
    return f" -d {shlex.quote(text)}" if text else ""


def _quoted(words: Sequence[str]) -> str:
    return shlex.quote(" ".join(words))
