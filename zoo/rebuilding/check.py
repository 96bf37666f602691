"""Checks the settings of all fits before the first one begins.

    python -m zoo.rebuilding.check JOBS      JOBS: JSON, [[name of the stage, arguments of `zoo fit`, WAITS], ...]

WAITS: the stage reads files that earlier ones make, so it does not matter that one is missing.
"""

import json
import sys
from collections.abc import Sequence

from zoo.training.parsing import check_arguments


def main(arguments: Sequence[str]) -> int:
    """Checks all jobs.

    Returns:
        The exit code: 0, or 2 after an error, which one line on standard error explains.
    """
    for name, args, waits in json.loads(arguments[0]):
        try:
            check_arguments(args)
        except (ValueError, FileNotFoundError) as error:
            if waits and isinstance(error, FileNotFoundError):
                continue
            print(f"zoo: error: stage {name}: {' '.join(str(error).split())}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
