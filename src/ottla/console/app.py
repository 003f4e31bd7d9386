"""The console as an ASGI application: its pages, and what stands before them.

Viewers share what the cluster is asked for (`sharing.py`).
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from confluent_kafka import KafkaException
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from ottla.client.errors import ClientError
from ottla.console.access.access import Access
from ottla.console.guard import Guard
from ottla.console.metrics import Counts
from ottla.console.pages.base import HERE, Pages, Shell
from ottla.console.pages.cluster import ClusterPages
from ottla.console.pages.connectors import ConnectorPages
from ottla.console.pages.group_actions import GroupActions
from ottla.console.pages.groups import GroupPages
from ottla.console.pages.login import LoginPages
from ottla.console.pages.openid_login import OpenIdLoginPages
from ottla.console.pages.overview import OverviewPages
from ottla.console.pages.pipelines import PipelinePages
from ottla.console.pages.produce import ProducePages
from ottla.console.pages.records import RecordPages
from ottla.console.pages.security import SecurityPages
from ottla.console.pages.share_keys import ShareKeyPages
from ottla.console.pages.topic_actions import TopicActions
from ottla.console.pages.topic_settings import TopicSettingPages
from ottla.console.pages.topics import TopicPages
from ottla.console.pages.transactions import TransactionPages

PAGES: Final[tuple[type[Pages], ...]] = (
    OverviewPages,
    RecordPages,
    ProducePages,
    TopicPages,
    TopicActions,
    TopicSettingPages,
    GroupPages,
    GroupActions,
    ShareKeyPages,
    TransactionPages,
    ConnectorPages,
    PipelinePages,
    ClusterPages,
    SecurityPages,
    LoginPages,
    OpenIdLoginPages,
)
"""In the order in which their routes are tried, and in which the navigation has them."""


def application(access: Access, counts: Counts | None = None) -> Starlette:
    """The console of one cluster. `access` is closed by its maker; `counts`: where its pages count what they do."""
    shell = Shell(access, counts)
    shell.templates.globals["navigation"] = tuple(chain.from_iterable(each.NAVIGATION for each in PAGES))
    routes = list(chain.from_iterable(each(shell).routes() for each in PAGES))
    failures: Mapping[Any, Any] = {
        HTTPException: shell.failure,
        ClientError: shell.no_answer,
        KafkaException: shell.no_answer,
        TimeoutError: shell.no_answer,
    }
    app = Starlette(
        routes=[*routes, Mount("/static", StaticFiles(directory=HERE / "static"))], exception_handlers=dict(failures)
    )
    app.add_middleware(Guard, access=access, counts=shell.counts)
    return app
