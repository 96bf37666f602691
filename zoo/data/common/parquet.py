"""Two columns of text of a .parquet file, read in blocks, so that memory does not grow with the file."""

from collections.abc import Iterator
from pathlib import Path

from zoo.utils.extras import require

_BLOCK = 8192  # rows read together


def is_parquet(path: Path) -> bool:
    """Whether a file is a .parquet file, by its name."""
    return path.suffix.lower() == ".parquet"


def read_parquet(path: Path, src: str, tgt: str) -> Iterator[tuple[str, str]]:
    """Two columns of a .parquet file, row by row.

    Args:
        path: the file.
        src: name of a column; a dot leads into a structure, as in "translation.en".
        tgt: the same for the second.

    Raises:
        ValueError: pyarrow is not installed, a column is missing or is not text, or the file is damaged.
    """
    require("parquet", f"{path}: reading it")
    import pyarrow as pa  # pyright: ignore[reportMissingImports]
    from pyarrow.parquet import ParquetFile  # pyright: ignore[reportMissingImports]

    number, columns = 0, (src, tgt)
    try:
        with ParquetFile(path, pre_buffer=False) as file:
            names = [file.schema.column(place).path for place in range(len(file.schema))]
            for column in columns:
                if column not in names:
                    raise ValueError(f"{path} has no column {column!r}; it has {', '.join(map(repr, names))}")
            for block in file.iter_batches(_BLOCK, columns=[*columns]):
                table = pa.Table.from_batches([block])
                while any(pa.types.is_struct(kind) for kind in table.schema.types):
                    table = table.flatten()
                for row in zip(*(table[name].to_pylist() for name in columns)):
                    number += 1
                    for text, name in zip(row, columns):
                        if not isinstance(text, str):
                            raise ValueError(f"{path}, row {number:,}: {name!r} must be text; got {text!r:.50}")
                    yield row
    except PermissionError:
        raise
    except (pa.ArrowException, OSError) as error:
        what = f"{error}".partition("\n")[0]
        raise ValueError(
            f"{path}: not a complete .parquet file: {what}; the last row that can be read is {number:,}"
        ) from error
