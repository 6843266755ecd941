"""Rewards: precedence of their parts (reward.py), what evaluators are still to be asked (questions.py), gaming watched (gaming.py). Pure."""

from services.trajproc.core.scoring.gaming import GamingWatch, repeated_share
from services.trajproc.core.scoring.questions import (
    Question,
    failed_required,
    missing_in_group,
    open_questions,
    values_of,
)
from services.trajproc.core.scoring.reward import Reward, composite, is_success, why_no_reward

__all__ = [
    "GamingWatch",
    "Question",
    "Reward",
    "composite",
    "failed_required",
    "is_success",
    "missing_in_group",
    "open_questions",
    "repeated_share",
    "values_of",
    "why_no_reward",
]
