"""Arguments of `zoo completion`."""

import argparse

SUMMARY = "print a script with which the shell completes commands, options and names"
EXAMPLE = (
    'eval "$(zoo completion bash)"                      # in ~/.bashrc; zsh likewise\n'
    "  zoo completion fish > ~/.config/fish/completions/zoo.fish"
)


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    command.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(options: argparse.Namespace) -> None:
    """Imports what the command needs, and runs it."""
    from zoo.commands.completion import run
    from zoo.commands.training import completions

    run(options.shell, options.all_verbs(), completions())
