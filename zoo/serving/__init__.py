"""`zoo serve`: a model behind HTTP, on uvicorn.

    POST /predict   JSON in, JSON out; a captioner also takes the bytes of an image file
    GET  /info      the model, its fields, limits and scores
    GET  /health    200 if the model can answer, 503 while it cannot

The first process accepts requests and checks their sender, size and form (endpoint.py, connections.py). Workers hold
the model (worker.py): they validate a request (forms.py) before computing anything, so that a wrong one is rejected at
once without affecting others. Separate processes decode images (images.py). All these processes do one small task at a
time (pool.py) and are replaced when they die, hang or take too long (child.py). limits.py has the limits of a request.
"""

from zoo.serving.server import run

__all__ = ["run"]
