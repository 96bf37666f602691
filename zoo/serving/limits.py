"""All limits of `zoo serve`, so that no request and no number of connections can block the server for others.

GET /info shows the limits in force. The flags --max-items, --max-tokens, --max-bytes, --max-work and --timeout change
some. The limits of images are in zoo/vision/images.py.
"""

# ---- content of one request; more is rejected with status 400, 413 or 422 ----

MAX_WORD = 1_000  # characters without a space
MAX_BEAM = 16
MAX_ADDED = 200  # words that a language model adds to a text
MAX_TOP_K = 100_000
TEMPERATURES = 0.01, 100
MAX_QUERY = 200  # tokens: a reader compares each of them with each document token
MAX_JSON_PARTS = 1_000_000  # commas and brackets: a list takes thirty times its size in memory

# Work is counted in tokens read or written, times the hypotheses of a search; `Form.work` defines it per task. A unit
# takes 0.05 to 1 ms on one core of a laptop. --max-work is the maximum for one request.
BATCH_SHARE = 8  # share of it for a batch, and thus for one text: nobody waits longer for others' requests
SMALL_SHARE = 64  # requests up to this share of it run alongside a larger batch

# ---- waiting: --timeout is for the body, for the answer, and for a batch, after which the worker is replaced ----

TURN_OF_THE_OLDEST = 4  # the request with the least work is next; after this many batches, the oldest one
MAX_WAITING = 512  # unanswered requests; further ones are rejected with status 503
MAX_WAITING_BYTES = 2**28  # of their bodies; above this, those with more than an equal share are rejected
READ_ON = 4  # a body is read up to this many times the limit before rejection, so that the client sees the answer

# ---- connections ----

MAX_CONNECTIONS = 500  # one more closes the one that has waited longest for its client
IDLE_SECONDS = 10.0  # from the start of a connection, or from an answer, to the end of the next headers
READING_SECONDS = 30.0  # from an answer until the client has read it
MAX_HEADER_BYTES = 2**14  # more is rejected with status 431, or 400 if it arrives in parts

# ---- processes ----

SMALL_IMAGES = 16_000_000  # pixels in one request: maximum of one of the two image decoders, an ordinary photo
LOW_PRIORITY = 10  # `nice` value of the other one
DECODING_SECONDS = 10.0  # for one image; then the process is ended
DECODING_MEMORY = 2**30  # bytes, beyond what the process has when it starts
SILENT_SECONDS = 15.0  # without a sign of life; then a process is replaced
STARTING_SECONDS = 60.0  # the same while starting
STARTS = 3  # attempts in a row to start a process; then the server ends
MAX_CARD_BYTES = 2**16  # of the model's card in /info
