def price(discount):
    return (1 - discount) * (1 + 4 * discount)
