"""The supervised warm start."""

import json
from random import Random

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from services.trainer.warmstart import (
    Progress,
    Row,
    Settings,
    WarmStartError,
    _loss,
    _padded,
    batches,
    load_rows,
    load_tokenizer,
    lr_share,
    render,
    train,
    warm_start,
)  # fmt: skip

WORDS = ["[PAD]", "<end>", "sys:", "usr:", "bot:", "tool:", "call", "a", "b", "c", "d"]
TEMPLATE = (
    "{% for m in messages %}{{ {'system': 'sys:', 'user': 'usr:', 'assistant': 'bot:', 'tool': 'tool:'}[m.role] }} "
    "{{ m.content }}{% for t in m.tool_calls or [] %} call {{ t.function.name }}{% endfor %} <end> {% endfor %}"
    "{% if add_generation_prompt %}bot: {% endif %}"
)
MESSAGES = [
    {"role": "user", "content": "a b"},
    {"role": "assistant", "content": "c", "tool_calls": [{"function": {"name": "d", "arguments": {}}}]},
    {"role": "tool", "content": "b"},
    {"role": "assistant", "content": "a"},
]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One word, one token."""
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[PAD]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="[PAD]", chat_template=TEMPLATE)


def make_model(seed: int = 0) -> Qwen3ForCausalLM:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=32, tie_word_embeddings=True,
    ))  # fmt: skip


@pytest.fixture
def directory(tmp_path):
    make_tokenizer().save_pretrained(tmp_path / "in")
    make_model().save_pretrained(tmp_path / "in")
    (tmp_path / "data.jsonl").write_text(
        "".join(json.dumps({"messages": MESSAGES, "tools": []}) + "\n" for _ in range(8))
    )
    return tmp_path


def test_targets_are_what_the_assistant_says_with_its_calls_and_the_end_of_its_turn():
    """D12, B6: neither the role marker nor anything that was said to the assistant is a target."""
    row = render(make_tokenizer(), MESSAGES)
    words = [WORDS[i] for i in row.ids]
    assert words == "usr: a b <end> bot: c call d <end> tool: b <end> bot: a <end>".split()
    assert [w for w, t in zip(words, row.targets, strict=True) if t] == "c call d <end> a <end>".split()
    assert [i for i, t in enumerate(row.targets) if t] == [5, 6, 7, 8, 13, 14]


def test_a_template_that_rewrites_history_is_refused():
    """Qwen3's own drops earlier thinking, for example: then no prefix is what the model will have seen."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ messages | length }} " + TEMPLATE
    with pytest.raises(WarmStartError, match="message 1"):
        render(tokenizer, MESSAGES)


def test_the_loss_is_the_mean_over_target_tokens_of_the_whole_batch():
    """Computed at target positions alone, it equals the model's own loss over padded labels."""
    model, row = make_model(), render(make_tokenizer(), MESSAGES)
    ids_BT, labels_BT = _padded([row, Row(row.ids[:9], row.targets[:9])])
    assert labels_BT[1].tolist()[-6:] == [-100] * 6  # the shorter row has nine tokens of fifteen
    torch.testing.assert_close(_loss(model, ids_BT, labels_BT), model(input_ids=ids_BT, labels=labels_BT).loss)


def test_every_row_is_in_one_batch_and_batches_keep_the_budget():
    rng = Random(0)
    lengths = [rng.randint(5, 90) for _ in range(200)] + [5000]
    found = batches(lengths, 400, Random(1))
    assert sorted(i for batch in found for i in batch) == list(range(201))
    assert all(len(b) * max(lengths[i] for i in b) <= 400 for b in found if b != [200])
    assert [200] in found  # too long for any batch, so on its own
    assert found == batches(lengths, 400, Random(1)) != batches(lengths, 400, Random(2))


def test_the_step_size_warms_up_and_follows_a_cosine():
    settings = Settings(warmup_share=0.1, lr_end_share=0.2)
    shares = [lr_share(step, 110, settings) for step in range(111)]
    assert shares[0] == pytest.approx(1 / 11) and shares[10] == pytest.approx(1.0)  # 11 steps of warm-up
    assert shares[11] == pytest.approx(1.0)
    assert shares[110] == pytest.approx(0.2)
    assert shares[11:] == sorted(shares[11:], reverse=True)


def test_training_learns_and_is_the_same_for_the_same_seed():
    """D12"""
    rows = [render(make_tokenizer(), MESSAGES)] * 8
    settings = Settings(epochs=20, tokens_per_batch=60, lr_peak=1e-2, seed=3)
    runs = []
    for _ in range(2):
        model = make_model()
        runs.append(([p.loss for p in train(model, rows, settings)], model.state_dict()))
    assert runs[0][0] == runs[1][0] and len(runs[0][0]) == 40  # 8 rows of 15 tokens are two batches of 60
    assert all(torch.equal(runs[0][1][k], runs[1][1][k]) for k in runs[0][1])
    assert runs[0][0][-1] < 0.2 * runs[0][0][0]


def test_time_is_a_hard_bound():
    ticks = iter(range(1000))
    rows = [render(make_tokenizer(), MESSAGES)] * 8
    seen = list(train(make_model(), rows, Settings(epochs=50, tokens_per_batch=60, seconds_max=5), lambda: next(ticks)))
    assert 1 <= len(seen) <= 4 and seen[-1].steps == 100


def test_the_result_is_written_whole_and_never_over_something(directory):
    last = warm_start(f"{directory}/in", f"{directory}/data.jsonl", f"{directory}/out", Settings(epochs=1))
    assert isinstance(last, Progress)
    assert load_tokenizer(f"{directory}/out").chat_template == TEMPLATE
    before, after = (AutoModelForCausalLM.from_pretrained(f"{directory}/{d}").state_dict() for d in ("in", "out"))
    assert any(not torch.equal(before[k], after[k]) for k in before)
    assert sorted(p.name for p in directory.iterdir()) == ["data.jsonl", "in", "out"]
    with pytest.raises(FileExistsError):
        warm_start(f"{directory}/in", f"{directory}/data.jsonl", f"{directory}/out", Settings(epochs=1))


def test_a_model_without_tokenizer_is_refused(directory):
    make_model().save_pretrained(directory / "bare")
    with pytest.raises(WarmStartError, match="has no tokenizer"):
        warm_start(f"{directory}/bare", f"{directory}/data.jsonl", f"{directory}/out", Settings())
    assert not (directory / "out").exists()


def test_recorded_tokens_are_trained_on_as_they_are(directory):
    """D12: what `gyre export --what demonstrations` writes stands beside messages, and nothing is tokenised again."""
    recorded = {"sample_id": "g0-e0-a1", "ids": [5, 3, 4, 3], "targets": [0, 0, 1, 1]}
    (directory / "data.jsonl").write_text(json.dumps({"messages": MESSAGES}) + "\n" + json.dumps(recorded) + "\n")
    row = load_rows(make_tokenizer(), f"{directory}/data.jsonl")[1]
    assert (row.ids, row.targets) == ([5, 3, 4, 3], [False, False, True, True])


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"tools": []}',
        "[]",
        '{"ids": [1], "targets": [1, 1]}',
        '{"ids": [1], "targets": [0]}',
        '{"ids": [99999999], "targets": [1]}',
        '{"ids": ["a"], "targets": [1]}',
        '{"ids": 3, "targets": [1]}',
    ],
)
def test_a_bad_line_is_named(directory, line):
    (directory / "data.jsonl").write_text(json.dumps({"messages": MESSAGES}) + "\n" + line + "\n")
    with pytest.raises(WarmStartError, match=r"data\.jsonl:2"):
        load_rows(make_tokenizer(), f"{directory}/data.jsonl")
