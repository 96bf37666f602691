"""What is used of LitServe and the libraries below it.

Without the extra `serve` these are stand-ins, so that every module can still be imported, as by a tool that looks at each; `zoo serve`
says what is missing.
"""

from zoo import extras

if not extras.missing("serve"):
    from fastapi import FastAPI, HTTPException, Request, Response
    from fastapi.responses import JSONResponse
    from litserve import LitAPI, LitServer
    from litserve.loops import LitLoop
    from litserve.specs.base import LitSpec
    from litserve.utils import LitAPIStatus, LoopResponseType, ResponseBufferItem
    from starlette.requests import ClientDisconnect
else:
    FastAPI = HTTPException = Request = Response = JSONResponse = ClientDisconnect = object
    LitAPI = LitServer = LitLoop = LitSpec = LitAPIStatus = LoopResponseType = ResponseBufferItem = object

__all__ = [
    "ClientDisconnect",
    "FastAPI",
    "HTTPException",
    "JSONResponse",
    "LitAPI",
    "LitAPIStatus",
    "LitLoop",
    "LitServer",
    "LitSpec",
    "LoopResponseType",
    "Request",
    "Response",
    "ResponseBufferItem",
]
