"""Steps of frames run in the order of their frames."""

from __future__ import annotations

from pto_transport_zmq.remote.messages import Arrivals


def test_steps_of_a_later_frame_wait_until_all_earlier_frames_are_complete() -> None:
    arrivals, ran = Arrivals(), []
    for frame in (1, 2, 2, 4):
        arrivals.add(frame, lambda frame=frame: ran.append(frame))
    assert ran == [1]
    arrivals.complete(1)
    assert ran == [1, 2, 2]
    arrivals.complete(2)
    assert ran == [1, 2, 2]
    arrivals.complete(3)
    assert ran == [1, 2, 2, 4]
    arrivals.add(4, lambda: ran.append(4))
    assert ran == [1, 2, 2, 4, 4]
