"""YAML in which no key stands twice: of a section given twice, plain YAML silently keeps the second one alone."""

from typing import Any

import yaml


def load(text: str) -> Any:
    """The values of a text in YAML.

    Raises:
        yaml.YAMLError: it is none, or has a key twice; with `problem` and `problem_mark`.
    """
    _check(yaml.compose(text, yaml.SafeLoader), set())
    return yaml.safe_load(text)


def _check(node: yaml.Node | None, seen: set[int]) -> None:
    """Looks at a tree before merges (`<<`) change it; aliases lead to the same node again."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in keys:
                said = f"{key.value!r} stands there a second time; join the two"
                raise yaml.MarkedYAMLError(problem=said, problem_mark=key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                keys.add((key.tag, key.value))
            _check(value, seen)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check(item, seen)
