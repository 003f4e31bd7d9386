"""The login and the logout."""

import math
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ottla.client.errors import ClientError
from ottla.console.access.access import Access
from ottla.console.access.audit import Sender
from ottla.console.access.logins import LoginRefused, Logins
from ottla.console.access.origins import local_path
from ottla.console.access.roles import Role
from ottla.console.access.sessions import LONGEST_S, Session
from ottla.console.pages.actions import ActionPages, Form, read_form, reason_of, sender
from ottla.console.pages.base import viewer_of


class LoginPages(ActionPages):
    """The pages that users without a session see."""

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages; none where nobody logs in."""
        if self._shell.access.logins is None:
            return []
        return [
            Route("/login", self.form, methods=["GET"]),
            *self._of_passwords(),
            self.action("/logout", self.log_out, Role.NONE),
        ]

    def _of_passwords(self) -> Sequence[BaseRoute]:
        if self._shell.access.openid is not None:
            return []
        return [Route("/login", self.log_in, methods=["POST"])]  # without a viewer, and so without a viewer's token

    async def form(self, request: Request) -> Response:
        """The form of the login; a user that is logged in goes on."""
        following = local_path(request.query_params.get("next", "/"))
        if request.state.viewer is not None:
            return RedirectResponse(following, 303)
        return self._shown(request, following)

    def _shown(
        self, request: Request, following: str, status: int = 200, *, user: str = "", problem: str = ""
    ) -> Response:
        return self._shell.page(
            request,
            "login.html",
            status,
            next=following,
            user=user,
            problem=problem,
            mechanisms=self._logins.mechanisms,
            provider=None if self._shell.access.openid is None else self._shell.access.openid.name,
        )

    @property
    def _logins(self) -> Logins:
        logins = self._shell.access.logins
        assert logins is not None
        return logins

    async def log_in(self, request: Request) -> Response:
        """Begin a session."""
        form = await read_form(request)
        following, user = local_path(form.get("next", "/")), form.get("user", "")
        mechanism = form.get("mechanism", self._logins.mechanisms[0])
        trail, origin = self._shell.access.settings.trail, sender(request)
        try:
            session_id = await self._logins.log_in(origin.address, mechanism, user, form.get("password", ""))
        except LoginRefused as refusal:
            await self.written(trail.login(origin, mechanism, str(refusal)))
            answer = self._shown(request, following, refusal.status, user=user, problem=f"Not logged in: {refusal}.")
            if refusal.wait_s:
                answer.headers["Retry-After"] = str(refusal.wait_s)
            return answer
        except (ClientError, TimeoutError) as error:
            return self._shown(request, following, 502, user=user, problem=f"Not logged in: {reason_of(error)}.")
        try:
            await self.written(trail.login(Sender(f"User:{user}", origin.address), mechanism, None))
        except HTTPException:
            self._end(self._shell.access.sessions.find(session_id, is_used=False))
            raise
        if request.state.viewer is not None:
            self._end(request.state.viewer.session)
        answer = RedirectResponse(following, 303)
        set_cookie(answer, self._shell.access, session_id, LONGEST_S)
        return answer

    async def log_out(self, request: Request, form: Form) -> Response:
        """End the session."""
        self._end(viewer_of(request).session)
        answer = RedirectResponse("/login", 303)
        set_cookie(answer, self._shell.access, "", 0)
        return answer

    def _end(self, session: Session | None) -> None:
        if session is not None:
            self._shell.access.sessions.end(session)


def set_cookie(answer: Response, access: Access, session_id: str, age_s: float) -> None:
    """Let the browser keep the id of a session for as long; 0: no longer."""
    answer.set_cookie(
        access.cookie,
        session_id,
        max_age=math.ceil(age_s),
        path="/",
        secure=access.settings.scheme == "https",
        httponly=True,
        samesite="strict",
    )
