"""What other threads may do to a reactor, and when."""

from concurrent.futures import ThreadPoolExecutor

from sparklog_server.daemon.reactor import Reactor


def test_threads_that_end_their_work_while_the_reactor_closes_write_to_no_descriptor_that_is_not_its_own() -> None:
    def work(reactor: Reactor) -> None:
        for _ in range(300):
            reactor.post(lambda: None)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(50):
            reactor = Reactor()
            working = [threads.submit(work, reactor) for _ in range(4)]
            reactor.turn(0.01)
            reactor.close()
            for one in working:
                one.result()
