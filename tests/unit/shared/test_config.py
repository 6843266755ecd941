"""Configuration: typed, documented, refused where wrong, with the nearest thing that would be right."""

import msgspec
import pytest

from gyre.config import Config, field_docs, fingerprint, load, sections, store
from gyre.config.load import parse
from gyre.errors import ConfigError, Conflict

MODEL = {"model": {"path": "m"}}


def _sections() -> list[type]:
    kinds = [kind for kind in vars(sections).values() if isinstance(kind, type) and issubclass(kind, sections.Section)]
    return [kind for kind in kinds if kind is not sections.Section]


@pytest.mark.parametrize("section", _sections(), ids=lambda section: section.__name__)
def test_every_field_is_documented(section):
    """E: a docstring under each field."""
    undocumented = [
        field.name for field in msgspec.structs.fields(section) if len(field_docs(section).get(field.name, "")) < 8
    ]
    assert not undocumented


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"scheduler": {"cels": 2}}, "did you mean `scheduler.cells`"),
        ({"sheduler": {}}, "did you mean `scheduler`"),
        ({"scheduler": {"tiers": [{"nam": "x"}]}}, r"scheduler\.tiers\[0\]\.nam.*did you mean"),
        ({"scheduler": {"zzz": 1}}, "known here: mode, cells"),
        ({"run": {"steps": 0}}, "steps"),
        ({"run": {"steps": "many"}}, "int"),
        ({"trajproc": {"failed_share_max": 1.5}}, "1.0"),
        ({"run": {"name": "a.b"}}, "name"),
        ({"trainer": {"lr": float("nan")}}, r"`trainer\.lr` is nan: write a finite number"),
        ({"scheduler": {"extra_depth_steps": float("inf")}}, r"`scheduler\.extra_depth_steps` is inf"),
        ({"scheduler": {"tenant_weights": {"a": float("nan")}}}, r"`scheduler\.tenant_weights\.a` is nan"),
        ({"trainer": {"token_band": [0.5, float("inf")]}}, r"`trainer\.token_band\[1\]` is inf"),
        # a clock divided by it would be infinite, a sum of two of it too
        ({"scheduler": {"aging_s": 1e-310}}, r">= 1e-09 - at `\$\.scheduler\.aging_s"),
        ({"scheduler": {"tenant_weights": {"a": 1e308}}}, r"<= 1000000\.0 - at `\$\.scheduler\.tenant_weights"),
        ({"scheduler": {"tenant_weights": {"a": 1e-320}}}, r">= 1e-06"),
        ({"scheduler": {"cells": 1_000_000}}, "1024"),
        ({"scheduler": {"group_size": 1_000_000}}, "1024"),
        ({"trainer": {"betas": [2.0, 0.9]}}, "< 1.0"),
        ({"trainer": {"threads": 10**9}}, "1024"),
        ({"trainer": {"claim_s": 1e-9}}, "0.5"),
        ({"scheduler": {"cells": 10**30}}, r"`scheduler\.cells` has more than 64 bits"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_would_be_right(data, said):
    """E: bad input is a clear error."""
    with pytest.raises(ConfigError, match=said):
        parse({**MODEL, **data}, "train.toml")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"tasks": {"context_tokens_max": 4096}}, "more than rollout.context_max 1024"),
        # law = 8 + (1 − 1)/2 = 8 steps of mean staleness against a cap of 4
        ({"scheduler": {"extra_depth_steps": 8.0}, "trajproc": {"age_steps_max": 4}}, "below the mean staleness 8"),
        ({"environments": [{"name": "a"}]}, "none of the environments: a"),
        ({"scheduler": {"tiers": []}}, "tiers is empty"),
        ({"scheduler": {"tiers": [{"name": "a", "predicted_s_max": 9.0}, {"name": "a"}]}}, "has `a` twice"),
        (
            {"scheduler": {"tiers": [{"name": "a"}, {"name": "b", "predicted_s_max": 60.0}]}},
            "nothing is ever put into `b`",
        ),
        # 5 calls in segments of 3 to 4: 4 + 1 is too short a rest, and 3 + 2 likewise
        ({"trajproc": {"segment_calls_min": 3, "segment_calls_max": 4}}, r"less than 2·segment_calls_min − 1 = 5"),
        (
            {"trajproc": {"credit": "fusion", "advantage": "group_std"}},
            r"trajproc\.credit fusion is in units of reward",
        ),
        (
            {"trajproc": {"baseline_fallback": "running", "advantage": "max_rl"}},
            r"baseline_fallback running .* `group`",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(data, said):
    """C8, A5: a cap below the law would drop most samples."""
    with pytest.raises(ConfigError, match=said):
        parse({**MODEL, **data}, "train.toml")


def test_a_configuration_without_a_model_is_refused():
    with pytest.raises(ConfigError, match=r"neither model\.path nor model\.recipe"):
        parse({}, "train.toml")


def test_a_missing_file_and_a_file_that_is_no_toml_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("[run\n")
    with pytest.raises(ConfigError, match="not TOML"):
        load(tmp_path / "bad.toml")


def test_the_resolved_form_reads_back_the_same_and_any_change_changes_the_fingerprint(tmp_path):
    """C7: the fingerprint stands for every setting, defaults too."""
    config = parse(MODEL, "t")
    store(config, tmp_path / "config.toml")
    assert load(tmp_path / "config.toml") == config
    other = parse({**MODEL, "trainer": {"lr": 0.5}}, "t")
    assert fingerprint(config) != fingerprint(other)
    assert fingerprint(config) == fingerprint(msgspec.convert(msgspec.to_builtins(config), Config))


def test_a_configuration_of_somebodys_own_is_not_written_over(tmp_path):
    """`gyre train config.toml --run-dir .` replaced it by the resolved one, without its comments."""
    config, file = parse(MODEL, "test"), tmp_path / "config.toml"
    file.write_text("[model]\npath = 'm'  # mine\n")
    with pytest.raises(Conflict, match="a configuration of your own"):
        store(config, file)
    assert "# mine" in file.read_text()
    file.unlink()
    for _ in range(2):
        store(config, file)
    assert load(file) == config and [found.name for found in tmp_path.iterdir()] == ["config.toml"]
