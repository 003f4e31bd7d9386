"""The login by an OpenID provider: the way there, and the way back."""

from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ottla.client.errors import ClientError
from ottla.console.access.audit import Sender
from ottla.console.access.logins import LoginRefused
from ottla.console.access.openid_flow import ATTEMPT_S, LoginProblem
from ottla.console.access.openid_logins import BEGIN, CALLBACK, MECHANISM, OpenIdLogins
from ottla.console.access.openid_provider import ProviderSilent
from ottla.console.access.origins import local_path, origin_of
from ottla.console.access.sessions import LONGEST_S
from ottla.console.pages.actions import ActionPages, reason_of, sender
from ottla.console.pages.login import set_cookie


class OpenIdLoginPages(ActionPages):
    """Pages that the provider's pages come between. Both are opened by GET, as the provider leads back."""

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages; none without a provider."""
        if self._shell.access.openid is None:
            return []
        return [
            Route(BEGIN, self.begin, methods=["GET"]),
            Route(CALLBACK, self.finish, methods=["GET"]),
        ]

    @property
    def _openid(self) -> OpenIdLogins:
        openid = self._shell.access.openid
        assert openid is not None
        return openid

    @property
    def _cookie(self) -> str:
        return f"{self._shell.access.cookie}-login"

    async def begin(self, request: Request) -> Response:
        """Lead to the provider; a user that is logged in goes on."""
        following = local_path(request.query_params.get("next", "/"))
        if request.state.viewer is not None:
            return RedirectResponse(following, 303)
        if origin_of(f"{self._shell.access.settings.scheme}://{request.headers.get('host', '')}") != self._openid.base:
            # the provider leads back to this one name of several, and the cookie has to be there
            return RedirectResponse(f"{self._openid.base}{BEGIN}?{urlencode({'next': following})}", 303)
        try:
            cookie, address = await self._openid.begin(following)
        except ProviderSilent as problem:
            return self._failed(request, 502, str(problem))
        answer = RedirectResponse(address, 303)
        self._keep(answer, cookie, int(ATTEMPT_S))
        return answer

    async def finish(self, request: Request) -> Response:
        """Begin a session with what the provider answers."""
        trail, origin = self._shell.access.settings.trail, sender(request)
        try:
            session_id, user, following = await self._openid.finish(
                request.cookies.get(self._cookie, ""), dict(request.query_params)
            )
        except (LoginProblem, LoginRefused) as refusal:
            await self.written(trail.login(origin, MECHANISM, str(refusal)))
            return self._failed(request, refusal.status if isinstance(refusal, LoginRefused) else 403, str(refusal))
        except ProviderSilent as problem:
            return self._failed(request, 502, str(problem))
        except (ClientError, TimeoutError) as error:
            return self._failed(request, 502, reason_of(error))
        sessions = self._shell.access.sessions
        session = sessions.find(session_id, is_used=False)
        try:
            await self.written(trail.login(Sender(f"User:{user}", origin.address), MECHANISM, None))
        except HTTPException:
            if session is not None:
                sessions.end(session)
            raise
        if request.state.viewer is not None and request.state.viewer.session is not None:
            sessions.end(request.state.viewer.session)
        # browsers send the strict cookie with what a page of the console opens, and not while another site leads here
        answer = self.page(request, "logged_in.html", next=following)
        set_cookie(answer, self._shell.access, session_id, LONGEST_S)
        self._keep(answer, "", 0)
        return answer

    def _failed(self, request: Request, status: int, problem: str) -> Response:
        answer = self._shell.page(
            request,
            "login.html",
            status,
            next="/",
            user="",
            problem=f"Not logged in: {problem}.",
            mechanisms=(),
            provider=self._openid.name,
        )
        self._keep(answer, "", 0)
        return answer

    def _keep(self, answer: Response, cookie: str, age_s: int) -> None:
        """What binds a login to its browser. The provider leads back here from its site, so that it is not strict."""
        answer.set_cookie(
            self._cookie,
            cookie,
            max_age=age_s,
            path="/",
            secure=self._shell.access.settings.scheme == "https",
            httponly=True,
            samesite="lax",
        )
