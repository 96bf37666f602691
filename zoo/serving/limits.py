"""Every limit of `zoo serve`, so that no request, and no number of connections, keeps the server from answering others.

GET /info shows what holds. Flags of `zoo serve` set others: --max-items, --max-tokens, --max-bytes, --max-work and
--timeout. The limits
of images stand in zoo/vision/images.py.
"""

# ---- what one request may ask for; more is refused with status 400, 413 or 422 ----

MAX_WORD = 1_000  # characters without a space
MAX_BEAM = 16
MAX_ADDED = 200  # words that a language model adds to a text
MAX_TOP_K = 100_000
TEMPERATURES = 0.01, 100
MAX_QUERY = 200  # tokens: a reader compares each of them with each of the document
MAX_JSON_PARTS = 1_000_000  # commas and brackets: a list takes thirty times its size in memory

# Work is counted in tokens that are read or written, times the hypotheses of a search; each task says how
# (`Form.work`). On one core of a laptop a unit takes 0.05 to 1 ms. --max-work is the most for one request.
BATCH_SHARE = (
    8  # a batch, and thus one text, takes at most this part of it: nobody waits longer for a large request of others
)
SMALL_SHARE = 64  # what takes this part of it is done while a larger batch runs

# ---- what a request may wait for: --timeout is for the body, for the answer, and for a batch, after which the worker
# is replaced ----

TURN_OF_THE_OLDEST = 4  # the request with the least work comes next, but each time after so many batches the oldest one
MAX_WAITING = 512  # requests that have no answer yet; the next ones are sent away with status 503
MAX_WAITING_BYTES = 2**28  # of their bodies; beyond, those that hold more than an equal share are sent away
READ_ON = (
    4  # a body is read up to so many times the limit before it is refused: who still sends does not see the answer
)

# ---- connections ----

MAX_CONNECTIONS = 500  # with one more, the one that has waited longest for its client is closed
IDLE_SECONDS = 10.0  # from the start of a connection, or from an answer, to the end of the next headers
READING_SECONDS = 30.0  # from an answer until its client has read it
MAX_HEADER_BYTES = 2**14

# ---- processes ----

SMALL_IMAGES = (
    16_000_000  # pixels, in one request: one of the two processes that decode images takes no more, an ordinary photo
)
LOW_PRIORITY = 10  # of the other one for the operating system, as of `nice`
DECODING_SECONDS = 10.0  # for one image; then the process is ended
DECODING_MEMORY = 2**30  # bytes, beyond what the process has when it starts
SILENT_SECONDS = 15.0  # without a sign of life; then a process is replaced
STARTING_SECONDS = 60.0  # the same while it starts, before it can give any
STARTS = 3  # attempts in a row to start a process; then the server ends
MAX_CARD_BYTES = 2**16  # of the model's card in /info
