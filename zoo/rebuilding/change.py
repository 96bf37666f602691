"""Weights with other arguments, such as the beam size.

    python -m zoo.rebuilding.change FOLDER ARGUMENTS      ARGUMENTS: JSON

The weights themselves stay.
"""

import json
import sys
from collections.abc import Sequence

from zoo import registry
from zoo.bundles.files import LOCAL_DIR


def main(arguments: Sequence[str]) -> int:
    """Changes a folder of weights.

    Returns:
        The exit code: 0, or 2 after an error, which one line on standard error explains.
    """
    folder, changes = arguments
    try:
        registry.load(f"{LOCAL_DIR}{folder}", json.loads(changes)).save_pretrained(folder, half=True, golden=True)
    except (ValueError, OSError) as error:
        print(f"zoo: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
