"""Advantages of executions by name: services.trajproc.core.credit."""

from services.trajproc.core.credit.group import ADVANTAGES, advantages

__all__ = ["ADVANTAGES", "advantages"]
