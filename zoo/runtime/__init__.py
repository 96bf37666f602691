"""Models without torch: exported graphs, run by onnxruntime, with the verbs, options and results of `zoo.load`.

model = zoo.runtime.load("graphs")  # a folder of `zoo export NAME graphs --format onnx`
model.translate("A dog runs.").text
"""

from zoo.runtime.models import load

__all__ = ["load"]
