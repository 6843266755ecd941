"""Credit: rewards, milestone turns and values of a group's executions → advantages of their calls. Pure."""

from services.trajproc.core.credit.assign import Course, Credit, assign
from services.trajproc.core.credit.critic import Critic, make_critic
from services.trajproc.core.credit.group import ADVANTAGES, advantages

__all__ = ["ADVANTAGES", "Course", "Credit", "Critic", "advantages", "assign", "make_critic"]
