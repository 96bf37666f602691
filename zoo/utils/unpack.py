"""`Unpack` of PEP 692: `**options: Unpack[PairOptions]` says which keywords a constructor passes on to its base class.

It is for editors and type checkers alone. At run time it is `Any`, so that jsonargparse reads the base class's
signature: a TypedDict has neither its defaults nor its help texts, and `zoo fit` needs both.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Unpack
else:

    class Unpack:
        """`Unpack[...]` is `Any`."""

        def __class_getitem__(cls, options: type) -> Any:
            return Any


__all__ = ["Unpack"]
