"""`zoo export`: checkpoints as folders of weights, or models for other engines."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.bundles.files import Bundle, local_dir, replaceable
from zoo.utils.atomic import target_folder
from zoo.utils.extras import require


def run(options: argparse.Namespace) -> None:
    """Writes the folder; what cannot be written fails before any work."""
    if options.format == "onnx":
        require("onnx", "export to ONNX")
        from zoo.onnx_export import replaceable_graphs

        target_folder(options.folder, replaceable_graphs)  # fails before any work
    elif options.format == "ctranslate2":
        require("ctranslate2", "export to CTranslate2")
        from zoo.ctranslate2_export import replaceable_ctranslate2

        target_folder(options.folder, replaceable_ctranslate2)
    else:
        target_folder(options.folder, replaceable)
    from zoo.commands.average import average
    from zoo.training.checkpoints import model_of

    model = average(
        [model_of(source) if _is_checkpoint(source) else registry.load(source) for source in options.model],
        options.model,
    )
    if options.format != "bundle":
        _export_for(options.format, model, options.folder, _origin(options.model), options.int8)
        return
    before = _bundle_in(options.folder)
    folder = model.save_pretrained(options.folder, half=not options.int8, golden=True, int8=options.int8)
    bundle = Bundle(folder)
    if before is not None and before.config_sha256 != bundle.config_sha256:
        print(f"zoo: {options.folder} held another {before.class_path}, which was replaced", file=sys.stderr)
    for name in sorted(os.listdir(folder)):
        print(f"{name:24}{(folder / name).stat().st_size:>12,} bytes")
    print(f"sha256 of config.json, which lists those of the others: {bundle.config_sha256}")


def _bundle_in(folder: str) -> Bundle | None:
    """The weights in a folder; None if it has none."""
    return local_dir(folder) if (Path(folder) / "config.json").is_file() else None


def _export_for(engine: str, model: Any, folder: str, source: str, int8: bool) -> None:
    if engine == "onnx":
        from zoo.onnx_export import export_onnx as export
    else:
        from zoo.ctranslate2_export import export_ctranslate2 as export

    written = export(model, folder, source, int8)
    print("\n".join(f"{file.name:20}{file.stat().st_size / 1e6:7.2f} MB" for file in sorted(written.iterdir())))


def _origin(models: list[str]) -> str:
    """Where an exported model comes from, as its manifest says it."""
    return models[0] if len(models) == 1 else f"the average of {', '.join(models)}"


def _is_checkpoint(source: str) -> bool:
    return source.endswith(".ckpt") or (Path(source).exists() and not Path(source).is_dir())
