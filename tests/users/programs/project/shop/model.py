"""A package of one's own, in its own folder, that nobody has installed."""

from shop.prices import price


def train(config):
    return {"profit": price(config["discount"])}
