"""Credit: rewards, milestone turns and values of a group's executions → advantages of their calls. Pure."""

from services.trajproc.core.credit.assign import NO_CREDIT, Course, Credit, assign
from services.trajproc.core.credit.critic import Critic, make_critic
from services.trajproc.core.credit.group import ADVANTAGES, advantages

__all__ = ["ADVANTAGES", "NO_CREDIT", "Course", "Credit", "Critic", "advantages", "assign", "make_critic"]
