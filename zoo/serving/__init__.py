"""`zoo serve`: a model behind HTTP, on uvicorn.

    POST /predict   JSON in, JSON out; a captioner also takes the bytes of an image file
    GET  /info      the model, its fields, limits and scores
    GET  /health    200 if the model can answer, 503 while it cannot

The first process takes requests and checks who sends them, their size and form (endpoint.py, connections.py). Workers
hold the model (worker.py): they check what a request asks for (forms.py) before any of it is computed, so that a wrong
one is answered at once and harms nobody. Images are decoded by processes of their own (images.py). All these processes
do one small thing at a time (pool.py) and are replaced when they die, stop or take too long (child.py). What a request
may ask for stands in limits.py.
"""

from zoo.serving.server import run

__all__ = ["run"]
