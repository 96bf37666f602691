"""What commands say on standard error about single inputs."""

import sys


def say(what: str) -> None:
    """Writes a line to standard error, above a progress bar if there is one."""
    from tqdm import tqdm  # late: takes 0.02 s

    tqdm.write(f"zoo: {what}", file=sys.stderr)


class Faults:
    """Collects failures. A single input's failure is the error of the command; of several each is reported at once."""

    def __init__(self, noun: str) -> None:
        self.noun, self._count, self._first = noun, 0, ""

    def add(self, number: int, error: ValueError) -> None:
        """Records the failure of a text, counted from 1."""
        said = "it is not UTF-8 text" if isinstance(error, UnicodeEncodeError) else str(error)
        message = " ".join(said.split()).replace("text 1 has", "the text has")  # it was the only text of its call
        fault = f"{self.noun} {number}: {message}"
        self._count += 1
        if self._count == 1:
            self._first = fault
            return
        for message in [self._first, fault] if self._count == 2 else [fault]:
            print(f"zoo: {message}", file=sys.stderr)

    def raise_any(self, number: int) -> None:
        """Raises ValueError if any of a number of texts failed."""
        if self._count == 1:
            alone = number == 1 and self.noun == "text"
            raise ValueError(self._first.partition(": ")[2] if alone else self._first)
        if self._count:
            raise ValueError(f"{self._count:,} of {number:,} {self.noun}s could not be answered; see above")
