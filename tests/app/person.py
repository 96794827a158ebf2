"""A person at the real server, without a browser: speaks Streamlit's own messages over the WebSocket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

WAIT = 240


class Person:
    """One session: opens a page by its link, sets widgets by their key or label, reads what came."""

    def __init__(self, address: str) -> None:
        self._socket: ClientConnection = connect(
            f"{address.replace('http', 'ws')}/_stcore/stream",
            max_size=None,
            open_timeout=60,
            subprotocols=["streamlit"],  # type: ignore[list-item]
        )
        self._elements: dict[tuple[int, ...], Any] = {}
        self._cached: dict[str, bytes] = {}
        self._numbers: dict[str, float] = {}
        self._page = ""
        self._query = ""
        self._polled = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the tab."""
        self._socket.close()

    def open(self, page: str = "", **settings: str) -> None:
        """Follow a link to a page, "" for the first one, and wait until it is drawn."""
        self._page, self._query = page, urlencode(settings)
        self._elements.clear()
        self._run()

    def press(self, label: str) -> None:
        """Press the button with this label."""
        pressed = next(e.button for e in self.of("button") if e.button.label == label)
        state = BackMsg()
        widget = state.rerun_script.widget_states.widgets.add(id=pressed.id)
        widget.trigger_value = True
        self._run(state)

    def choose(self, label: str, number: float) -> None:
        """Set the number field with this label; it keeps its value from then on."""
        field = next(e.number_input for e in self.of("number_input") if e.number_input.label == label)
        self._numbers[field.id] = number
        self._run()

    def again(self) -> None:
        """Let the page be drawn once more."""
        self._run()

    def poll(self) -> list[str]:
        """Do what the browser does again and again where the page asks for it; the kinds of elements that come."""
        message = BackMsg()
        message.rerun_script.fragment_id = self._polled
        message.rerun_script.is_auto_rerun = True
        return sorted(str(e.WhichOneof("type")) for e in self._asked(message).values())

    def of(self, kind: str) -> list[Any]:
        """The page's elements of a kind, from top to bottom."""
        return [e for _, e in sorted(self._elements.items()) if e.WhichOneof("type") == kind]

    def lanes(self) -> dict[str, Any]:
        """What the strip draws; without the selection, which is the person's own."""
        (strip,) = self.of("bidi_component")
        payload: dict[str, Any] = json.loads(strip.bidi_component.json)
        payload.pop("selected")
        return payload

    def words(self) -> str:
        """All that is said in Markdown and in alerts."""
        said = [e.markdown.body for e in self.of("markdown")] + [e.alert.body for e in self.of("alert")]
        return "\n".join(said).replace("\\", "")

    def _run(self, message: BackMsg | None = None) -> None:
        message = message or BackMsg()
        for widget, number in self._numbers.items():
            message.rerun_script.widget_states.widgets.add(id=widget, double_value=number)
        self._elements = {p: e for p, e in self._asked(message).items() if e.WhichOneof("type") not in (None, "empty")}

    def _asked(self, message: BackMsg) -> dict[tuple[int, ...], Any]:
        message.rerun_script.query_string = self._query
        message.rerun_script.page_name = self._page
        self._socket.send(message.SerializeToString())
        fresh: dict[tuple[int, ...], Any] = {}
        for heard in self._messages():
            match heard.WhichOneof("type"):
                case "delta":
                    fresh[tuple(heard.metadata.delta_path)] = heard.delta.new_element
                case "script_finished" if heard.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                    fresh.clear()
                case "script_finished":
                    break
                case "auto_rerun":
                    self._polled = heard.auto_rerun.fragment_id
        return fresh

    def _messages(self) -> Iterator[ForwardMsg]:
        while True:
            raw = self._socket.recv(timeout=WAIT)
            assert isinstance(raw, bytes)
            heard = ForwardMsg.FromString(raw)
            # A large message that came before is sent as its name only.
            if heard.WhichOneof("type") == "ref_hash":
                metadata = heard.metadata
                heard = ForwardMsg.FromString(self._cached[heard.ref_hash])
                heard.metadata.CopyFrom(metadata)
            elif heard.hash:
                self._cached[heard.hash] = raw
            yield heard
