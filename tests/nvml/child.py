"""The probe in a process of its own, on whatever libnvidia-ml the loader finds: `python -m tests.nvml.child`.

For each line on standard input it prints one line of JSON: `look` the cards as announced and their health, `xids` those
heard since it was asked last; the first `xids` begins to listen.
"""

import json
import sys
import threading

from libs.kit.clock import SystemClock
from services.agent.probe import health
from services.agent.probe.driver import Driver, load_nvml
from services.agent.probe.facts import seen_cards
from services.agent.probe.xids import XidListener

WAIT_S = 20.0


def main() -> None:
    """Answer until the end of the input."""
    driver, heard = Driver(load_nvml()), threading.Event()
    listener = XidListener(driver, SystemClock(), heard.set)
    cards, listening = seen_cards(driver), False
    for line in sys.stdin:
        if line.strip() == "look":
            looks = [health.look(asking, None) for asking in driver.cards()]
            answer: object = {
                "cards": [card.model_dump(mode="json") for card in cards],
                "health": [look.card.model_dump(mode="json") for look in looks],
                "errors": [look.link_crc_errors for look in looks],
                "slowed": [look.slowed for look in looks],
            }
        else:
            if not listening:
                listener.start()
                listening = True
            heard.wait(WAIT_S)
            heard.clear()
            answer = [(one.index, one.code) for one in listener.take()]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    listener.stop()


if __name__ == "__main__":
    main()
