"""`zoo serve`: a model behind HTTP, on LitServe.

    POST /predict   JSON in, JSON out; a captioner also takes the bytes of an image file
    GET  /info      the model, its fields, limits and scores
    GET  /health    200 once a model is loaded

Three kinds of processes. The first one starts and stops the others and never loads torch (server.py). API servers take requests and
check their size and form (endpoint.py). Workers hold the model (worker.py): each checks what a request asks for (tasks.py)
before it joins a batch, so that a wrong one is answered at once and harms nobody; what fails in a batch all the same is answered one
by one.
"""

from zoo.serving.server import run

__all__ = ["run"]
