"""elastic_plus's planner: which knobs the next bursts should have, by simulation from what has been seen (docs/elastic-plus.md).

    State ──question.ask──▶ Question (a specification of the simulator) ──search.answer──▶ Answer ──▶ PlanChosen, in force from the next boundary

Pure and the same for the same question: the simulator calls it between two events, the service in a process of its own. It knows what the
state's fold knows: tokens and times of executions that have ended, what a step has cost, what role changes took.
"""

from services.scheduler.planner.knobs import staleness_mean, strict_max
from services.scheduler.planner.planner import Planner, planner_of
from services.scheduler.planner.question import Question, ask
from services.scheduler.planner.search import Answer, answer

__all__ = ["Answer", "Planner", "Question", "answer", "ask", "planner_of", "staleness_mean", "strict_max"]
