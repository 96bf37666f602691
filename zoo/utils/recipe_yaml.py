"""YAML in which no key stands twice: of a section given twice, plain YAML silently keeps the second one alone."""

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                said = f"{key.value!r} stands there a second time; join the two"
                raise yaml.constructor.ConstructorError(problem=said, problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)


def load(text: str) -> Any:
    """The values of a text in YAML.

    Raises:
        yaml.YAMLError: it is none, or has a key twice; with `problem` and `problem_mark`.
    """
    return yaml.load(text, _Loader)  # a SafeLoader
