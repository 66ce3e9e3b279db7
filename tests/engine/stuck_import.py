"""A trainable whose import hangs."""

import time

time.sleep(600)


def train(config: dict[str, object]) -> dict[str, float]:
    return {"loss": 1.0}
