"""Signals: noted once, obeyed by whoever asks, and everything as before afterwards."""

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from training.stop import SIGNALS, PreemptionGuard


class Interrupted(Exception):
    """What the handler from before raises, so that nobody is ended by these tests."""


@pytest.fixture(autouse=True)
def earlier():
    """Handlers of somebody else, and the signals that came to them."""
    came = []

    def handler(number, frame):
        came.append(number)
        raise Interrupted

    before = {number: signal.signal(number, handler) for number in SIGNALS}
    yield came
    for number, function in before.items():
        signal.signal(number, function)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_is_noted_and_does_nothing_else(earlier, number, code):
    with PreemptionGuard() as stop:
        assert stop.signal is None and stop.exit_code == 0
        signal.raise_signal(number)
        assert stop.signal is number and stop.exit_code == code
    assert earlier == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_one_does_what_it_always_did(earlier, number):
    with PreemptionGuard() as stop:
        signal.raise_signal(number)
        with pytest.raises(Interrupted):
            signal.raise_signal(number)
        assert stop.signal is number
    assert earlier == [number]


def test_ctrl_c_after_a_sigterm_changes_nothing(earlier):
    """A scheduler that sent SIGTERM looks for 143, whatever else comes while the run saves."""
    with PreemptionGuard() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop.signal is signal.SIGTERM and stop.exit_code == 143
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
    assert earlier == [signal.SIGINT]


def test_a_terminal_that_closes_sends_several(earlier):
    """The shell and the system each send a SIGHUP: the second must not end the save that the first asked for."""
    with PreemptionGuard() as stop:
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
        assert stop.signal is signal.SIGHUP
    assert earlier == []


WAITS = """
import fcntl, termios, time
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
from training.stop import PreemptionGuard
with PreemptionGuard() as stop:
    print("ready", flush=True)
    while stop.signal is None:
        time.sleep(0.01)
    print("saved", flush=True)
raise SystemExit(stop.exit_code)
"""


def test_what_is_said_to_a_closed_terminal_goes_nowhere():
    """The process of a terminal whose window is closed, or whose connection drops, comes to its end all the same."""
    ours, its = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), its)
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "-c", WAITS], cwd=root, start_new_session=True, **streams)
    os.close(its)
    assert os.read(ours, 100).strip() == b"ready"
    os.close(ours)
    assert process.wait(60) == 129


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_is_ignored_stays_ignored(number):
    """As under `nohup`."""
    signal.signal(number, signal.SIG_IGN)
    with PreemptionGuard() as stop:
        signal.raise_signal(number)
        assert stop.signal is None and signal.getsignal(number) is signal.SIG_IGN
    assert signal.getsignal(number) is signal.SIG_IGN


@pytest.mark.parametrize("number", SIGNALS)
def test_afterwards_all_is_as_before(earlier, number):
    handler = signal.getsignal(number)
    for came in (False, True):
        with pytest.raises(RuntimeError), PreemptionGuard():
            if came:
                signal.raise_signal(number)
            raise RuntimeError
        assert signal.getsignal(number) is handler
    with pytest.raises(Interrupted):
        signal.raise_signal(number)
    assert earlier == [number]


def test_outside_of_the_main_thread_nothing_changes(earlier):
    handler, seen = signal.getsignal(signal.SIGTERM), []

    def work():
        with PreemptionGuard() as stop:
            seen.append((signal.getsignal(signal.SIGTERM), stop.signal))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(handler, None)]
