"""Work that waits its turn."""

import asyncio

from ottla.server.keyed_queue import KeyedQueue


def test_work_under_one_key_is_done_in_order_and_under_others_at_once() -> None:
    async def main() -> None:
        queue, seen = KeyedQueue(), []
        gates = {name: asyncio.Event() for name in "abc"}

        def work(name: str) -> None:
            async def wait() -> None:
                seen.append(name)
                await gates[name].wait()
                seen.append(name.upper())

            queue.put(2 if name == "c" else 1, wait)

        for name in "abc":
            work(name)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert seen == ["a", "c"]
        gates["b"].set()
        gates["a"].set()
        while queue.is_busy(1):
            await asyncio.sleep(0)
        assert seen == ["a", "c", "A", "b", "B"]
        assert queue.is_busy(2)
        await queue.close()
        assert not queue.is_busy(2)

    asyncio.run(main())


def test_work_that_fails_holds_nobody_up() -> None:
    async def main() -> None:
        queue, seen = KeyedQueue(), []

        async def fail() -> None:
            raise ValueError("a defect")

        async def go_on() -> None:
            seen.append("done")

        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        queue.put(1, fail)
        queue.put(1, go_on)
        while queue.is_busy(1):
            await asyncio.sleep(0)
        assert seen == ["done"]

    asyncio.run(main())


def test_nothing_is_done_once_it_is_closed() -> None:
    async def main() -> None:
        queue, seen, gate = KeyedQueue(), [], asyncio.Event()

        def work(name: str) -> None:
            async def wait() -> None:
                seen.append(name)
                await gate.wait()
                seen.append(name.upper())

            queue.put(1, wait)

        for name in "abc":
            work(name)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await queue.close()
        gate.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert seen == ["a"]

    asyncio.run(main())
