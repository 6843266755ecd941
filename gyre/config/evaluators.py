"""Evaluator settings that are each right and do not fit together; what each kind can pay (D4).

    R = rules in [0, 1]:  (1 − r)·(outcome·(1 − s) + milestones up to s) + Σ rule weights·scores      r = Σ rule weights, s = milestone_share
    total = R + (1 − R)·L + (1 − R − (1 − R)·L)·D                                                     L, D = Σ weights·scores of learned, dense

so learned and dense together fill at most `lower_share` = 1 − (1 − Σ learned)·(1 − Σ dense) of what rules leave open.
"""

import ipaddress
from collections import Counter
from urllib.parse import urlsplit

from gyre.config.sections import Config, EvaluatorConfig

SHARE_EPSILON = 1e-9


def weight_of(evaluators: list[EvaluatorConfig], kind: str) -> float:
    """Sum of the weights of a kind."""
    return sum(one.weight for one in evaluators if one.kind == kind)


def lower_share(evaluators: list[EvaluatorConfig]) -> float:
    """The largest part of what rules leave open that learned and dense evaluators can fill together."""
    return 1.0 - (1.0 - weight_of(evaluators, "learned")) * (1.0 - weight_of(evaluators, "dense"))


def problems(config: Config) -> list[str]:
    """What is wrong, each with what would be right; empty where all is well."""
    found = [text for one in config.evaluators for text in _own(one)]
    twice = [name for name, count in Counter(one.name for one in config.evaluators).items() if count > 1]
    if twice:
        found.append(f"evaluators: `{twice[0]}` is named twice; each needs a name of its own")
    return found + _shares(config)


def _own(one: EvaluatorConfig) -> list[str]:
    where, found = f"evaluators `{one.name}`", []
    if one.transport == "http":
        host, has_secret = _parts(one.url)
        if not one.url.startswith(("http://", "https://")) or not host:
            found.append(f"{where}: transport http needs url, e.g. http://127.0.0.1:8090/score, not {one.url!r}")
        elif has_secret:
            found.append(
                f"{where}: url holds a name or password, which would be stored with the run; name a variable in token_env instead"
            )
        elif one.token_env and one.url.startswith("http://") and not _is_loopback(host):
            found.append(f"{where}: token_env would send its token in the clear to {one.url}; use https")
    if one.transport == "grpc" and not one.address.rpartition(":")[2].isdigit():
        found.append(f"{where}: transport grpc needs address, e.g. 127.0.0.1:9100, not {one.address!r}")
    unused = one.address if one.transport == "http" else one.url
    if unused:
        found.append(f"{where}: transport {one.transport} does not use {unused!r}; leave it out or change transport")
    if one.budget_s < one.timeout_s:
        found.append(f"{where}: budget_s {one.budget_s:g} is less than timeout_s {one.timeout_s:g}, one try's wait")
    if one.kind != "guard" and one.weight == 0:
        found.append(f"{where}: weight 0 would ask it and pay nothing; a weight above 0, or leave the evaluator out")
    return found


def _shares(config: Config) -> list[str]:
    """What kinds can pay together. A verified success must stay above everything that learned and dense ones can give to a failure."""
    found, evaluators, share = [], config.evaluators, config.trajproc.milestone_share
    rules, lower = weight_of(evaluators, "rule"), lower_share(evaluators)
    if rules > 1.0 + SHARE_EPSILON:
        found.append(
            f"evaluators: weights of kind rule sum to {rules:g}; at most 1, what they leave is the environment's"
        )
    for kind in ("learned", "dense"):
        if (total := weight_of(evaluators, kind)) > 1.0 + SHARE_EPSILON:
            found.append(f"evaluators: weights of kind {kind} sum to {total:g}; at most 1")
    has_rules = config.trajproc.outcome_counts or any(one.kind == "rule" and one.required for one in evaluators)
    if not has_rules:
        if lower > 0 and not config.trajproc.learned_alone:
            found.append(
                "evaluators: with trajproc.outcome_counts false and no required evaluator of kind rule, learned and dense scores would be "
                "the whole reward, one model alone; add a rule, or set trajproc.learned_alone = true"
            )
        return found
    success, failure = (1.0 - rules) * (1.0 - share), (1.0 - rules) * share + rules
    if lower >= 1.0 or (success > failure and failure + (1.0 - failure) * lower >= success):
        line = (success - failure) / (1.0 - failure) if success > failure else 1.0
        found.append(
            f"evaluators: learned and dense together fill up to {lower:.3g} of what rules leave open, so a failure they like could be paid as "
            f"much as a verified success; below {line:.3g} it cannot (1 − (1 − Σ learned weights)·(1 − Σ dense weights))"
        )
    return found


def _parts(url: str) -> tuple[str, bool]:
    """Host, empty where there is none, and whether a name or password stands before it."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", "@" in parts.netloc
    except ValueError:
        return "", False


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
