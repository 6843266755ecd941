"""Sums of money in cents."""


def total(prices: list[int], discount_percent: int = 0) -> int:
    return sum(prices) * (100 + discount_percent) // 100
