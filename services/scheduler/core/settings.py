"""What the policy is given, and which part of it may change from burst to burst."""

from typing import Literal

import msgspec

from gyre.config import Config, TierConfig

Mode = Literal["elastic", "elastic_plus", "async", "colocate", "hybrid_switch"]
CellKind = Literal["training", "elastic", "standalone"]


class Knobs(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan may change at a boundary; symbols as in docs/staleness.md."""

    steps_per_publish: int
    """μ, steps."""
    extra_depth_steps: float
    """φ, steps."""
    release_share: float = 1.0
    """ρ"""
    is_two_way: bool = False
    """Whether cells may also go back inside a burst."""
    order: str = "longest_first"
    """Of a tenant's queue inside a class: `longest_first` or `submitted`."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed for a run, but for the knobs, which are only where it begins."""

    cells: int
    """K"""
    cell_capacity: int
    """C_e, executions."""
    groups_per_step: int
    """B as planned, groups."""
    steps_per_publish: int
    """μ, steps."""
    extra_depth_steps: float
    """φ, steps."""
    mode: Mode = "elastic"
    training_cells: int = 0
    standalone_cells: int = 0
    streaming: bool = True
    dispatch: Literal["boundary", "continuous"] = "boundary"
    release_share: float = 1.0
    is_two_way: bool = False
    """Whether cells may also go back inside a burst, from the first one on: elastic_plus without a planner. With one it begins as `elastic` does,
    for where the two-way rule is slower only a plan can know."""
    tiers: tuple[TierConfig, ...] = (TierConfig(),)
    order: str = "longest_first"
    aging_s: float = 600.0
    starvation_s: float = 3600.0
    tenant_weights: dict[str, float] = {}
    evaluation_concurrency_max: int = 1_024
    """E: evaluations' executions unfinished at once, and sent between two boundaries."""
    evaluations_max: int = 10_000
    """Evaluations' executions that wait or are unfinished."""
    anneal_steps: int = 0
    anneal_to: float = 1.0
    run_seed: int = 1
    fingerprint: str = ""

    @classmethod
    def of(cls, config: Config, fingerprint: str) -> "Settings":
        chosen = config.scheduler
        return cls(
            cells=chosen.cells, cell_capacity=chosen.cell_capacity, groups_per_step=chosen.groups_per_step,
            steps_per_publish=chosen.steps_per_publish, extra_depth_steps=chosen.extra_depth_steps, mode=chosen.mode,
            training_cells=chosen.training_cells, standalone_cells=chosen.standalone_cells, streaming=chosen.streaming,
            dispatch=chosen.dispatch, release_share=chosen.release_share, is_two_way=chosen.mode == "elastic_plus" and chosen.plan_every_bursts == 0,
            tiers=tuple(chosen.tiers), order=chosen.order, aging_s=chosen.aging_s, starvation_s=chosen.starvation_s,
            tenant_weights=dict(chosen.tenant_weights), evaluation_concurrency_max=chosen.evaluation_concurrency_max,
            evaluations_max=chosen.evaluations_max, anneal_steps=chosen.anneal_steps, anneal_to=chosen.anneal_to,
            run_seed=config.run.seed, fingerprint=fingerprint,
        )  # fmt: skip

    @property
    def knobs(self) -> Knobs:
        """In force until the first plan."""
        return Knobs(
            steps_per_publish=self.steps_per_publish, extra_depth_steps=self.extra_depth_steps, release_share=self.release_share,
            is_two_way=self.is_two_way, order=self.order,
        )  # fmt: skip

    def cell_kind(self, index: int) -> CellKind:
        """First the cells that always train, then elastic ones, then standalone ones."""
        if index < self.training_cells:
            return "training"
        is_standalone = self.mode == "async" or index >= self.cells - self.standalone_cells
        return "standalone" if is_standalone else "elastic"

    def tier(self, name: str) -> TierConfig:
        """Raises KeyError for a tier that is not configured."""
        return self.tiers[self.tier_index(name)]

    def tier_index(self, name: str) -> int:
        for index, tier in enumerate(self.tiers):
            if tier.name == name:
                return index
        raise KeyError(name)

    def tier_for(self, predicted_s: float) -> str:
        """The first tier that fits; the last takes whatever is longer still."""
        return next((t.name for t in self.tiers if predicted_s <= t.predicted_s_max), self.tiers[-1].name)

    def weight(self, tenant: str) -> float:
        return self.tenant_weights.get(tenant, 1.0)
