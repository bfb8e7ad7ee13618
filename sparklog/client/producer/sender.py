"""The threads of a producer: performs the steps that `turns.py` decides, with one lock and one condition.

No thread holds the lock while it uses the network, sleeps, or runs a callback.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sparklog.client.clock import entropy, now_us
from sparklog.client.failures import ClientClosed
from sparklog.client.producer.accumulator import Gathering
from sparklog.client.producer.intake import Partitioner
from sparklog.client.producer.outbound_batch import Done
from sparklog.client.producer.sending import Sending
from sparklog.client.producer.turns import WITHOUT_LIMIT, Step, Steps, Turns
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.network import Network
from sparklog.errors import SparklogError
from sparklog.model import Micros

T = TypeVar("T")


class Sender:
    """The sending half of a producer. `lock` guards the accumulator, the callbacks of batches, and the
    choice of the thread that uses the network.
    """

    def __init__(self, settings: ClientSettings, partitioner: Partitioner | None = None) -> None:
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self.network = Network(settings, can_be_woken=True)
        self._sending = Sending(
            settings, self.network, entropy, self.lock, self._changed.notify_all, partitioner
        )
        self.accumulator = self._sending.accumulator
        self.intake = self._sending.intake
        self.transaction = self._sending.transaction
        self.turns = Turns(self._sending, now_us, sends_full_batches=settings.linger_ms > 0)
        self._thread = threading.Thread(target=self._run, name="sparklog-producer", daemon=True)
        self._thread.start()

    def send(self) -> None:
        """Send the ready batches; `lock` is held, and released meanwhile."""
        self._perform(self.turns.send(threading.get_ident()))

    def wait(self, is_over: Callable[[], bool], deadline: Micros) -> bool:
        """Work, or let another thread work, until a condition holds; False if it does not by the deadline, or
        at a close. `lock` is held, and released meanwhile.
        """
        return self._perform(self.turns.wait(threading.get_ident(), is_over, deadline))

    def wait_for(self, batch: Gathering, deadline: Micros) -> Done | None:
        """Work until a batch is done; None if it is not by the deadline."""
        if batch.done is None:
            with self.lock:
                if not self.wait(lambda: batch.done is not None, deadline) and self.turns.is_closed:
                    self._changed.wait_for(lambda: batch.done is not None)  # a close ends every batch
        return batch.done

    def tell(self, fact: Callable[[], T]) -> T:
        """Call `fact`, which changes the transaction or the cluster, while no thread uses them."""
        with self.lock:
            self._perform(self.turns.alone(threading.get_ident()))
            result = fact()
            self.turns.wanted()
            self._publish()
            self.send()
            return result

    def close(self, error: SparklogError) -> None:
        """Fail the remaining batches, and close the connections."""
        with self.lock:
            self.turns.closed()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._end(error)

    # -- inside ----------------------------------------------------------------------------------------------

    def _perform(self, steps: Steps[T]) -> T:
        """Perform steps to their end, then run callbacks; `lock` is held except during a step."""
        try:
            action = next(steps)
            while True:
                try:
                    now = self._step(*action)
                except BaseException as error:
                    action = steps.throw(error)
                else:
                    action = steps.send(now)
        except StopIteration as end:
            result: T = end.value
        if self._sending.has_callbacks:
            self._sending.call(self._call)
        return result

    def _step(self, step: Step, until: Micros) -> Micros:
        if step is Step.WAIT:
            self._changed.wait(None if until == WITHOUT_LIMIT else max(0, until - now_us()) / 1e6)
            return until
        if step is Step.CALL:
            self._sending.call(self._call)
            return until
        self.lock.release()
        try:
            if step is Step.SHIP:
                return self._sending.ship()
            if step is Step.TURN:
                return self._sending.turn()
            if step is Step.SLEEP:
                self.network.wait(until)
            else:
                time.sleep(max(0, until - now_us()) / 1e6)
            return until
        except BaseException as error:
            if step is Step.SHIP or step is Step.TURN:
                # A bug in the client, or an interrupt that left a request half written.
                with self.lock:
                    self.turns.closed()
                    self._sending.give_up(ClientClosed(f"the producer broke: {error!r}"))
            raise
        finally:
            self.lock.acquire()
            if step is not Step.SLEEP and step is not Step.REST:
                self._publish()

    def _publish(self) -> None:
        if self._sending.publish():
            self.turns.published(threading.get_ident())

    def _call(self, callback: Callable[[], object]) -> None:
        self.lock.release()
        try:
            callback()
        except Exception as error:
            threading.excepthook(
                threading.ExceptHookArgs(
                    (type(error), error, error.__traceback__, threading.current_thread())
                )
            )
        finally:
            self.lock.acquire()

    def _end(self, error: SparklogError) -> None:
        with self.lock:
            self._perform(self.turns.alone(threading.get_ident()))
            self._sending.give_up(error)
            self._publish()
            self.network.close()
            self._sending.call(self._call)

    # -- the background thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self.lock:
                self._perform(self.turns.background(threading.get_ident()))
        except BaseException as error:
            # A bug in the client: no thread may wait for batches that are never sent.
            with self.lock:
                self.turns.closed()
            self._end(ClientClosed(f"the producer's thread broke: {error!r}"))
            raise
