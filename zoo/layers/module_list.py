"""torch's ModuleList; to a type checker it also says of what it is a list."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from torch import nn

Part = TypeVar("Part", bound=nn.Module)

if TYPE_CHECKING:

    class ModuleList(nn.ModuleList, Generic[Part]):
        """A list of modules of one class."""

        def __init__(self, modules: Iterable[Part]): ...

        @overload
        def __getitem__(self, idx: slice) -> "ModuleList[Part]": ...

        @overload
        def __getitem__(self, idx: int) -> Part: ...

        def __getitem__(self, idx: int | slice) -> "Part | ModuleList[Part]": ...

        def __iter__(self) -> Iterator[Part]: ...

else:
    ModuleList = nn.ModuleList
