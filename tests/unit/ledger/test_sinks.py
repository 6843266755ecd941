"""Sinks (E): what each of the tools of others takes at once. The real ones are tried by `make test-foreign`."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from services.ledger.sinks import MLflow

SERVER_TAKES = 1_000
"""MLflow's REST reference, `runs/log-batch`: up to 1000 metrics."""


@pytest.mark.parametrize("count", [0, 7, 1_000, 2_345])
def test_a_step_of_many_figures_reaches_mlflow_in_requests_that_its_server_takes(monkeypatch, tmp_path, count):
    taken = []

    class Client:
        def __init__(self, _uri: str) -> None:
            pass

        def get_experiment_by_name(self, _name):
            return SimpleNamespace(experiment_id="1")

        def search_runs(self, *_, **__):
            return [SimpleNamespace(info=SimpleNamespace(run_id="r"))]

        def log_batch(self, run, metrics) -> None:
            if len(metrics) > SERVER_TAKES:
                raise ValueError("too many metrics")
            taken.extend((run, *metric) for metric in metrics)

    entities, tracking = ModuleType("mlflow.entities"), ModuleType("mlflow.tracking")
    entities.Metric, tracking.MlflowClient = lambda *values: values, Client
    for name, module in (
        ("mlflow", ModuleType("mlflow")),
        ("mlflow.entities", entities),
        ("mlflow.tracking", tracking),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    figures = {f"train/reward_{index}": float(index) for index in range(count)}
    MLflow("r", tmp_path).log(3, figures, 1.5)
    assert taken == [("r", name, value, 1500, 3) for name, value in figures.items()]
