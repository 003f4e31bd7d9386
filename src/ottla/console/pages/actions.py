"""What pages share that change something.

A class of pages derives from `ActionPages`, and declares each action by `self.action(path, do, role)`: a form that is
posted to `path`. `do(request, form)` is called only if

- the form comes from the console's own pages (the guard sees to it), and has the viewer's token;
- the console changes anything at all, and the viewer has the role.

`do` then calls `self.change(request, change, run, sentence, then)`, which writes the audit log before and after `run`.
What is refused is in the audit log, too. An action that loses something first calls `confirmed(form, name)`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlencode

from confluent_kafka import KafkaException
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.client.errors import ClientError
from ottla.console.access.audit import AuditProblem, Change, Sender
from ottla.console.access.roles import Role
from ottla.console.access.viewer import Viewer
from ottla.console.pages.base import NOTICE, Pages, viewer_of

T = TypeVar("T")

LARGEST_FORM_BYTES: Final = 64 << 10
MOST_FIELDS: Final = 200
TOKEN: Final = "csrf"
CONFIRMATION: Final = "confirm"

Form = Mapping[str, str]
"""The fields of a form, without empty ones; of several with one name the last."""
Do = Callable[[Request, Form], Awaitable[Response]]


class ActionPages(Pages):
    """Pages with forms that change something."""

    def action(self, path: str, do: Do, role: Role, largest_bytes: int = LARGEST_FORM_BYTES) -> Route:
        """The route of a form."""

        async def guarded(request: Request) -> Response:
            await self.needs_to_act(request, role)
            form = await read_form(request, largest_bytes)
            if not viewer_of(request).knows(form.get(TOKEN, "")):
                await self._refuse(request, "the form is not one of this session: load the page again")
            return await do(request, form)

        return Route(path, guarded, methods=["POST"])

    def needs(self, request: Request, role: Role) -> None:
        """Raise HTTPException if the viewer may not do what the page is a form for."""
        if not viewer_of(request).may(role):
            raise HTTPException(403, f"Not for you: {_lacks(viewer_of(request), role)}.")

    async def needs_to_act(self, request: Request, role: Role) -> None:
        """Raise HTTPException if the viewer may not do it, which the audit log then has."""
        if not viewer_of(request).may(role):
            await self._refuse(request, _lacks(viewer_of(request), role))

    async def _refuse(self, request: Request, reason: str) -> None:
        await self.written(self._shell.access.settings.trail.refused(sender(request), _what(request), reason))
        raise HTTPException(403, f"Nothing was done: {reason}.")

    async def change(
        self,
        request: Request,
        change: Change,
        run: Callable[[], Awaitable[T]],
        sentence: str | Callable[[T], str],
        then: str | Callable[[T], str],
    ) -> Response:
        """Do it, and lead to `then`, which shows the sentence; either may depend on the outcome. Raises HTTPException
        if it fails."""
        trail = self._shell.access.settings.trail
        await self.written(trail.begun(sender(request), change))
        try:
            done = await run()
        except (KafkaException, ClientError, TimeoutError) as error:
            reason = reason_of(error)
            await self.written(trail.ended(sender(request), change, reason))
            raise HTTPException(409, f"It was not done: {reason}") from error
        except BaseException as error:
            await self.written(trail.ended(sender(request), change, type(error).__name__))
            raise
        finally:
            viewer_of(request).view.forget()
        await self.written(trail.ended(sender(request), change, None))
        key = viewer_of(request).leave_notice(sentence if isinstance(sentence, str) else sentence(done))
        following = then if isinstance(then, str) else then(done)
        return RedirectResponse(f"{following}{'&' if '?' in following else '?'}{urlencode({NOTICE: key})}", 303)

    async def written(self, writing: Awaitable[None]) -> None:
        """Wait for the audit log. Raises HTTPException if it cannot be written."""
        try:
            await writing
        except AuditProblem as problem:
            raise HTTPException(503, f"Actions and logins are refused while {problem}.") from problem


def confirmed(form: Form, name: str) -> None:
    """Raise HTTPException if the form does not repeat the name of what is lost."""
    if form.get(CONFIRMATION, "") != name:
        raise HTTPException(400, f"Nothing was done: type the name, {name}, to confirm it.")


async def read_form(request: Request, largest_bytes: int = LARGEST_FORM_BYTES) -> dict[str, str]:
    """The fields of a form. Raises HTTPException."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "The console takes forms: application/x-www-form-urlencoded.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > largest_bytes:
            raise HTTPException(413, f"A form here has at most {largest_bytes:,} bytes.")
    try:
        fields = parse_qs(body.decode(), max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise HTTPException(400, "This is no form that the console has sent.") from None
    return {name: values[-1] for name, values in fields.items()}


def reason_of(error: Exception) -> str:
    """Why a request failed, as a sentence without its full stop."""
    if isinstance(error, KafkaException):
        found = error.args[0]
        return f"{found.str()} ({found.name()})"
    return str(error).rstrip(".") or "the cluster has not answered in time"


def sender(request: Request) -> Sender:
    """The sender of the request, for the audit log."""
    viewer = request.state.viewer
    return Sender(None if viewer is None else viewer.principal, request.client.host if request.client else "")


def _lacks(viewer: Viewer, role: Role) -> str:
    return f"this takes the role {role.word}" if viewer.changes else "this console only reads"


def _what(request: Request) -> str:
    return f"{request.method} {request.url.path}"
