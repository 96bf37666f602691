"""Files as scripts, so that a page without a server can read them: browsers let a page from a disk run scripts only.

A script has the content in a comment, byte by byte: web/src/page/wrapped.ts takes it out again. `*/` would end the
comment, so each of its slashes becomes a plus, and the script lists where they were.
"""

import json
import re

START, END = "/*", "*/})\n"


def wrapped(path: str, content: bytes) -> bytes:
    """The script PATH.js of a file of the page."""
    slashes = [found.end() - 1 for found in re.finditer(rb"\*/", content)]
    head = f"zooFile({json.dumps(path)},{json.dumps(slashes, separators=(',', ':'))},function(){{{START}"
    return head.encode() + content.replace(b"*/", b"*+") + END.encode()


def unwrapped(script: bytes) -> bytes:
    """The content of a script."""
    head, _, rest = script.partition(START.encode())
    content = bytearray(rest.removesuffix(END.encode()))
    for place in json.loads(head.decode().split(",", 1)[1].rpartition(",")[0]):
        content[place] = ord("/")
    return bytes(content)
