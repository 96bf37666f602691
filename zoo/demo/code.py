"""The code that computes what the page shows: each part as it stands in this installation, with its line."""

import ast
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
PARTS = {  # by file: functions, classes and methods that equations of the page name
    "zoo/layers/attention.py": (
        "LocalMonotonicAttention",
        "LocalPredictiveAttention",
        "LocalPredictiveFullAttention",
        "LocalPredictiveStarAttention",
    ),
    "zoo/layers/multi_head.py": ("MultiHeadAttention.forward",),
    "zoo/layers/scores.py": (
        "ConcatScore",
        "DotScore",
        "GeneralScore",
        "LocationScore",
        "ScaledDotScore",
        "additive_score",
    ),
    "zoo/models/attention_over_attention.py": ("attend_both_ways",),
    "zoo/models/han.py": ("ContextAttention",),
    "zoo/models/key_value_nmt.py": ("KeyValueNMT.split",),
    "zoo/models/key_value_predict_lm.py": ("WindowAttention",),
    "zoo/models/show_attend_tell.py": ("AttendingLSTM.attend",),
    "zoo/models/structured_self_attention.py": ("HopAttention",),
    "zoo/models/tutorial_attention.py": ("TutorialAttentionNMT.decoder_step",),
}


@cache
def excerpts() -> dict[str, dict[str, Any]]:
    """For each part, as FILE:PART, the number of its first line, and its text; without files that are not here."""
    found = {}
    for file, parts in PARTS.items():
        path = PACKAGE.parent / file
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            found |= {f"{file}:{part}": _excerpt(text, part) for part in parts}
    return found


def _excerpt(text: str, part: str) -> dict[str, Any]:
    node: Any = ast.parse(text)
    for name in part.split("."):
        node = next(one for one in node.body if getattr(one, "name", None) == name)
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return {"line": node.lineno, "text": textwrap.dedent("\n".join(lines))}
