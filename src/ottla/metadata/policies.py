"""The operator's policies for topics and settings (`ottla.policies`): found, and asked in threads, with a time limit.

Whatever a policy does that is not an answer refuses the request: an exception, and silence.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from ottla.cluster.commands import CreateTopic, SetConfigs
from ottla.cluster.configs import ConfigChange
from ottla.cluster.controller import NewTopic
from ottla.cluster.image import MetadataImage, ResourceType
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode, InvalidConfig, OttlaError
from ottla.metadata.plug_ins import made
from ottla.policies import ANSWERED_WITHIN_S, ConfigRequest, PolicyViolation, ResourceKind, TopicRequest

log = logging.getLogger(__name__)

GROUP: Final = "ottla.policies"
_KINDS: Final[Mapping[ResourceType, ResourceKind]] = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.GROUP: "group",
    ResourceType.CLIENT_METRICS: "client-metrics",
}

RequestT = TypeVar("RequestT")
CreateTopics = Callable[[Sequence[NewTopic], bool], Awaitable[list[CreateTopic | OttlaError]]]
"""Creates topics, or with True only validates; answers in the order of the request."""
Call = Callable[[], None]


class PolicyThread(Generic[RequestT]):
    """One policy and the thread it runs in. Its methods are called on the loop's thread.

    The thread is a daemon, so that a policy which never returns does not keep the broker from stopping.
    """

    def __init__(self, setting: str, name: str, policy: Any, *, timeout_s: float = ANSWERED_WITHIN_S) -> None:
        self._described = f"the policy {name} ({setting})"
        self._setting = setting
        self._policy = policy
        self._timeout_s = timeout_s
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._one_at_a_time = asyncio.Lock()
        self._pending: asyncio.Future[BaseException | None] | None = None
        self._hangs = False
        """Has it been given up to wait for the pending call?"""
        threading.Thread(target=self._run, name=f"ottla-policy-{name}", daemon=True).start()

    async def configure(self, settings: Mapping[str, str]) -> None:
        """Hand the policy the broker's settings. Raises `InvalidConfig` if it does not take them."""
        try:
            raised = await self._call(lambda: self._policy.configure(settings))
        except TimeoutError:
            raise InvalidConfig(
                f"{self._setting}: {self._described} has not returned from configure within {self._timeout_s:g} s"
            ) from None
        if raised is not None:
            raise InvalidConfig(
                f"{self._setting}: {self._described} does not take the settings: {raised!r}"
            ) from raised

    async def refusal(self, request: RequestT) -> OttlaError | None:
        """Why the policy refuses a request; None if it allows it."""
        try:
            raised = await self._call(lambda: self._policy.validate(request))
        except TimeoutError:
            log.error(
                "%s has not answered within %g s; the request is refused: %s",
                self._described,
                self._timeout_s,
                request,
            )
            return ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{self._described} has not answered within {self._timeout_s:g} s, so nothing is changed",
            )
        if raised is None:
            return None
        if isinstance(raised, PolicyViolation):
            return ApiError(ErrorCode.POLICY_VIOLATION, str(raised))
        if isinstance(raised, OttlaError):
            return raised
        log.error("%s failed; the request is refused: %s", self._described, request, exc_info=raised)
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{self._described} failed; see the broker's log")

    async def close(self) -> None:
        """Have the policy close, and wait for that no longer than for an answer."""
        try:
            raised = await self._call(self._policy.close)
        except TimeoutError:
            log.error("%s has not closed within %g s", self._described, self._timeout_s)
        else:
            if raised is not None:
                log.error("%s failed when it was closed", self._described, exc_info=raised)
        self._calls.put(None)

    async def _call(self, call: Call) -> BaseException | None:
        """What the call raised, if anything. Raises `TimeoutError`; at once while an earlier call has not returned."""
        async with self._one_at_a_time:
            if self._pending is not None:  # of a request that was given up
                await self._result(self._pending)
            loop = asyncio.get_running_loop()
            done: asyncio.Future[BaseException | None] = loop.create_future()

            def run() -> None:
                raised: BaseException | None = None
                try:
                    call()
                except BaseException as error:  # SystemExit, too: nothing of a policy's ends the thread
                    raised = error
                try:
                    loop.call_soon_threadsafe(_settle, done, raised)
                except RuntimeError:
                    return  # the loop is closed: the broker has stopped

            self._calls.put(run)
            self._pending = done
            self._hangs = False
            return await self._result(done)

    async def _result(self, pending: "asyncio.Future[BaseException | None]") -> BaseException | None:
        if not pending.done():
            finished, _ = await asyncio.wait([pending], timeout=0 if self._hangs else self._timeout_s)
            if not finished:
                self._hangs = True
                raise TimeoutError
        self._pending = None
        return pending.result()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _settle(done: "asyncio.Future[BaseException | None]", raised: BaseException | None) -> None:
    if not done.done():
        done.set_result(raised)


class Policies:
    """The policies of one broker; without any, everything is allowed."""

    def __init__(
        self,
        topics: PolicyThread[TopicRequest] | None = None,
        configs: PolicyThread[ConfigRequest] | None = None,
    ) -> None:
        self._topics = topics
        self._configs = configs

    @property
    def of_configs(self) -> bool:
        """Whether changes of settings have to be asked about."""
        return self._configs is not None

    async def topic_refusal(self, new: NewTopic, planned: CreateTopic) -> OttlaError | None:
        """Why a topic must not be created as planned: its settings are a matter of both policies, as in Kafka."""
        if self._configs is not None and planned.configs:
            refused = await self._configs.refusal(ConfigRequest("topic", new.name, dict(planned.configs)))
            if refused is not None:
                return refused
        if self._topics is None:
            return None
        placed = bool(new.assignments)
        partitions = planned.topic.partitions
        return await self._topics.refusal(
            TopicRequest(
                topic=new.name,
                partition_count=None if placed else len(partitions),
                replication_factor=None if placed else planned.topic.replication_factor,
                assignments={each.partition: tuple(each.replicas) for each in partitions} if placed else None,
                configs=dict(planned.configs),
            )
        )

    async def create_topics(
        self, topics: Sequence[NewTopic], create: CreateTopics, *, validate_only: bool
    ) -> list[CreateTopic | OttlaError]:
        """Have those topics created that are allowed; answers in the order asked.

        What is refused for another reason is not asked about: policies see requests that are valid.
        """
        if self._topics is None and self._configs is None:
            return await create(topics, validate_only)
        answers = await create(topics, True)
        for at, (new, planned) in enumerate(zip(topics, answers, strict=True)):
            if isinstance(planned, CreateTopic):
                answers[at] = await self.topic_refusal(new, planned) or planned
        if validate_only:
            return answers
        allowed = [at for at, answer in enumerate(answers) if isinstance(answer, CreateTopic)]
        for at, answer in zip(allowed, await create([topics[at] for at in allowed], False), strict=True):
            answers[at] = answer
        return answers

    async def config_refusal(self, change: ConfigChange, altered: Mapping[str, str | None]) -> OttlaError | None:
        """Why a resource's settings must not be `altered` so."""
        if self._configs is None or change.resource_type not in _KINDS:
            return None  # policies see no secrets, and in Kafka no quotas
        return await self._configs.refusal(ConfigRequest(_KINDS[change.resource_type], change.name, dict(altered)))

    async def close(self) -> None:
        """Close the policies."""
        for policy in (self._topics, self._configs):
            if policy is not None:
                await policy.close()


def altered_configs(image: MetadataImage, change: ConfigChange, after: SetConfigs) -> dict[str, str | None]:
    """The new values of the settings that a change names: of a broker all, of others those that differ, as in Kafka."""
    before = image.config(change.resource_type, change.name)
    named = {edit.name: after.configs.get(edit.name) for edit in change.edits}
    return {
        name: value
        for name, value in named.items()
        if change.resource_type is ResourceType.BROKER or before.get(name) != value
    }


def changed_meanwhile(change: ConfigChange) -> ApiError:
    """The refusal of a change whose outcome is no longer the one that the policy has seen; clients try again."""
    return ApiError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the settings of {change.name or 'all brokers'} were changed while the policy looked at them; try again",
    )


async def open_policies(config: BrokerConfig) -> Policies:
    """The policies that the settings name. Raises `InvalidConfig` if one is not installed or does not start."""
    return Policies(
        await _open("create.topic.policy.class.name", config.create_topic_policy_class_name, config),
        await _open("alter.config.policy.class.name", config.alter_config_policy_class_name, config),
    )


async def _open(setting: str, name: str | None, config: BrokerConfig) -> PolicyThread[Any] | None:
    if not name:
        return None
    thread: PolicyThread[Any] = PolicyThread(
        setting, name, made(setting, name, GROUP, "policy", ("configure", "validate", "close"))
    )
    await thread.configure(dict(config.given))
    return thread
