"""The server that `streamlit run` starts: the app behind a policy on what its pages may do and whom it answers."""

from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.starlette import App

_HOSTS = ("127.0.0.1", "localhost")
# Streamlit's own pages need inline scripts and styles, and Vega makes functions from text. But whatever gets into a
# page, nothing is fetched from another host or sent to one, and no other page can put this one into a frame.
_SAME_HOST = " ".join(f"ws://{host}:*" for host in _HOSTS)
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        f"connect-src 'self' data: blob: {_SAME_HOST}",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)


class Policy:
    """Adds the policy to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = POLICY
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
            await send(message)

        await self._app(scope, receive, answer)


# server.allowedHosts guards the WebSocket only.
app = App(
    Path(__file__).with_name("main.py"),
    middleware=[Middleware(Policy), Middleware(TrustedHostMiddleware, allowed_hosts=list(_HOSTS))],
)
