"""The heads of a Transformer as bertviz (https://github.com/jessevig/bertviz) shows them in a notebook.

from bertviz import head_view, model_view
from zoo.bridges.bertviz import heads

head_view(**heads(model.look("A dog runs in the snow.")))
"""

from typing import Any

from zoo.results.translation import Look

START = "<bos>"  # what the first step reads


def heads(look: Look) -> dict[str, Any]:
    """The arguments of `head_view` and `model_view`.

    bertviz labels a step of the decoder with the token that it reads, so each row shows where the model looks before it
    writes the next one.

    Args:
        look: What `model.look(source)` or `model.look(source, translation)` of a TransformerNMT gives.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(look, Look):
        raise TypeError(f"heads are those of model.look(source); got {type(look).__name__}")
    layers = {"encoder_attention": look.encoder, "decoder_attention": look.decoder, "cross_attention": look.cross}
    return {
        **{name: [layer.unsqueeze(0) for layer in maps] for name, maps in layers.items()},
        "encoder_tokens": look.source_tokens,
        "decoder_tokens": [START, *look.target_tokens[:-1]],
    }
