"""What goes wrong in a process of `zoo serve`; it imports nothing else, so that the process starts at once."""

import os
import time


class Broken:
    """A process that cannot start."""

    def __init__(self, error):
        raise error


class Whilst:
    """A process that starts as long as a file exists."""

    def __init__(self, path):
        if not os.path.exists(path):
            raise ValueError(f"{path} is gone")

    def facts(self):
        return "there"

    def sleep(self, items):
        time.sleep(max(items))
        return items


class Odd:
    """What goes wrong in a process."""

    def facts(self):
        return "there"

    def sleep(self, items):
        time.sleep(max(items))
        return items

    def echo(self, items):
        return items

    def die(self, items):
        if "deadly" in items:
            os._exit(1)
        return items

    def die_later(self, items):
        time.sleep(0.5)
        os._exit(1)

    def fail(self, items):
        raise RuntimeError("secret")
