"""The keys of a share group whose records will be delivered again."""

import asyncio
import functools
from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.admin import NotFound
from ottla.connect.runtime.threads import in_thread
from ottla.console.pages.base import Pages, Shell
from ottla.console.share_deliveries import share_rows
from ottla.console.share_keys import ByKey, by_key
from ottla.console.sight import Sight

AT_A_TIME: Final = 2
_KEPT_S: Final = 5.0


class ShareKeyPages(Pages):
    """Share groups by key, to look at."""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self._turns = asyncio.Semaphore(AT_A_TIME)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [Route("/share-keys/{group:path}", self.keys)]

    async def keys(self, request: Request) -> Response:
        """What will be delivered again, by key."""
        name = request.path_params["group"]
        view, viewer = self.view(request), self.viewer(request)
        sight = Sight(self._shell.access.settings.decode, viewer.masks)
        try:
            shared = await share_rows(view, name)
        except NotFound:
            raise HTTPException(404, f"There is no share group {name!r}.") from None

        async def ask() -> ByKey:
            read = functools.partial(by_key, view.client_properties, shared.deliveries, sight)
            async with self._turns:
                return await asyncio.wrap_future(in_thread(f"console reads keys of {name}", read))

        found = await view.shared.get(("share keys", name), ask, _KEPT_S)
        return self.page(request, "share_keys.html", group=name, found=found, problem=shared.problem)
