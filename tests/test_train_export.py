"""What transformers loads is the model that was trained, and comes back as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.make_tokens import LENGTH, SOURCES, make
from tests.ranks import run_ranks
from tests.test_train_checkpoint import on_trainer
from tests.trainers import config, train
from training import export as exports
from training import loop
from training.config import Config, ConfigError, load
from training.export import ExportError, export, main
from training.layout import layout_of
from training.model import Shape, Transformer
from training.weights import weights

transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

#: Nothing at its default, and far enough from the start that norms differ from each other.
ODD = (
    *("model.rope_theta=500.0", "model.norm_eps=1e-3", "optimizer.lr=0.05", "train.steps=2"),
    *("schedule.warmup=0", "checkpoint.every=1"),
)
MODELS = {
    "shared": (),  # 4 heads, 2 KV heads
    "single": ("model.kv_heads=1", "model.ffn=40"),
    "alone": ("model.kv_heads=4", "model.vocab=301"),
    "tied": ("model.tied=true",),
    "normed": ("model.qk_norm=true",),
    "uneven": ("model.heads=8", "model.kv_heads=4", "model.ffn=50"),  # w13 in 2 groups
}


def train_each(configs: list[Config]) -> None:
    for one in configs:
        train(one)


@pytest.fixture(scope="module")
def runs(toy_manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each model."""
    directory = tmp_path_factory.mktemp("models")
    made = [config(toy_manifest, directory / name, *ODD, *own) for name, own in MODELS.items()]
    run_ranks(1, train_each, made)
    return directory


def ours(run: Path) -> Transformer:
    """The model of a run, whole, on this process."""
    made = load(run / "config.yaml")
    model = Transformer(Shape.of(made.model, 258, LENGTH), made.model, made.train)
    model.load_state_dict(weights(run))
    return model


@pytest.mark.parametrize("name", MODELS)
def test_transformers_gives_the_same_logits(runs: Path, tmp_path: Path, name: str) -> None:
    export(runs / name, tmp_path / "out")
    model = ours(runs / name)
    tokens = torch.randint(0, 258, (3, 40), generator=torch.Generator().manual_seed(1))
    kind = transformers.Qwen3ForCausalLM if name == "normed" else transformers.LlamaForCausalLM
    theirs = kind.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        expected = model(tokens, layout_of([[40]] * 3, 40, "causal"))
        found = theirs(tokens).logits
    assert isinstance(expected, torch.Tensor)
    assert expected.shape == found.shape and expected.std() > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    auto = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(auto) is kind
    assert (theirs.config.eos_token_id, theirs.config.pad_token_id) == (256, 257)


def test_the_tokenizer_is_the_manifests(runs: Path, toy_manifest: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    export(runs / "shared", tmp_path / "out")
    path = toy_manifest / "tokenizer" / "tokenizer.json"
    found = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "Every mill grinds grain; émile, 麦.\n"
    assert found(text)["input_ids"] == Tokenizer.from_file(str(path)).encode(text).ids
    assert (found.eos_token_id, found.pad_token_id, found.bos_token_id) == (256, 257, None)
    assert found.model_max_length == LENGTH
    assert found.decode(found(text)["input_ids"]) == text
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == path.read_bytes()


def test_all_files_may_be_read_by_the_same_people(runs: Path, tmp_path: Path) -> None:
    export(runs / "shared", tmp_path / "out")
    assert len({place.stat().st_mode for place in (tmp_path / "out").iterdir()}) == 1


def test_large_weights_are_in_some_files(runs: Path, tmp_path: Path) -> None:
    export(runs / "shared", tmp_path / "one")
    export(runs / "shared", tmp_path / "some", largest=20_000)
    assert len(list((tmp_path / "some").glob("model-*-of-*.safetensors"))) > 3
    one, some = (
        transformers.LlamaForCausalLM.from_pretrained(tmp_path / name).state_dict()
        for name in ("one", "some")
    )
    assert one.keys() == some.keys()
    assert all(torch.equal(one[name], some[name]) for name in one)


def test_types_means_and_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        export(runs / "tied", tmp_path / name, average=2, dtype="bfloat16")
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()}
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    assert found.dtype == torch.bfloat16
    mean = weights(runs / "tied", average=2)["embed.weight"][:258].bfloat16()
    assert torch.equal(found.get_input_embeddings().weight, mean)
    assert "mean of 2 checkpoints, steps 1, 2" in (tmp_path / "one" / "README.md").read_text()


def test_the_card_names_what_it_was_trained_on(
    runs: Path, toy_manifest: Path, tmp_path: Path
) -> None:
    export(runs / "shared", tmp_path / "out", step=1)
    card = (tmp_path / "out" / "README.md").read_text()
    manifest = json.loads((toy_manifest / "manifest.json").read_text())
    assert f"`{manifest['digest']}`" in card
    assert "shared, step 1 |" in card and "| causal |" in card
    assert "512, padding included (8 rows of 64)" in card
    for source in manifest["sources"]:
        assert f"| {source['name']} | CC0-1.0 | {source['realised']:.2%} |" in card
    assert len(manifest["sources"]) == len(SOURCES)
    assert "## Takedown" in card


def test_the_command(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert main([str(runs / "shared"), str(out), "--step", "2", "--dtype", "float16"]) == 0
    assert json.loads((out / "config.json").read_text())["torch_dtype"] == "float16"
    (manifest := tmp_path / "other").mkdir()
    make(manifest, seed=21, samples=1024)
    fresh = str(tmp_path / "fresh")
    for arguments, said in (
        ([str(runs / "shared"), str(out)], "is there already"),
        ([str(tmp_path), fresh], "no complete checkpoint"),
        ([str(runs / "shared"), fresh, "--step", "3"], "no complete checkpoint of step 3"),
        ([str(runs / "shared"), fresh, "--manifest", str(manifest)], "the checkpoint is of"),
    ):
        capsys.readouterr()
        assert main(arguments) == 2
        line = capsys.readouterr().err
        assert line.startswith("training.export: ") and said in line and line.count("\n") == 1
    real = exports.check
    monkeypatch.setattr(exports, "check", lambda place: {**real(place), "objective": "mlm"})
    with pytest.raises(ExportError, match="attends both ways"):
        export(runs / "shared", Path(fresh))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


# ---------------------------------------------------------------- the way back


def begun(trainer: loop.Trainer) -> tuple[int, dict[str, Any], bool]:
    """Step, whole parameters, and whether the optimiser remembers anything, at the start."""
    trainer.resume()
    whole = {
        name: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach()  # type: ignore
        for name, p in trainer.model.named_parameters()
    }
    return (
        trainer.step,
        {name: tensor.clone().numpy() for name, tensor in whole.items()},
        any(bool(kept.any()) for own in trainer.optimizer.state.values() for kept in own.values()),
    )


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["uneven", "tied"])
def test_what_was_exported_comes_back_as_it_was(
    runs: Path, toy_manifest: Path, tmp_path: Path, name: str, ranks: int
) -> None:
    """From Hugging Face's form on one rank, from our own on two; and the other way round."""
    source = runs / name
    if (ranks == 2) == (name == "tied"):
        source = tmp_path / "out"
        export(runs / name, source)
    knobs = (*ODD, *MODELS[name], "train.micro_batch=4", f"checkpoint.init_from={source}")
    made = config(toy_manifest, tmp_path / "run", *knobs)
    expected = weights(runs / name)
    for step, found, remembers in run_ranks(ranks, on_trainer, made, begun):
        assert step == 0 and not remembers
        assert found.keys() | {"head.out.weight"} == expected.keys()
        for key, values in found.items():
            assert torch.equal(torch.from_numpy(values)[:258], expected[key][:258])
    note = json.loads((tmp_path / "run" / "run.json").read_text())["init_from"]
    assert note["from"].startswith(str(source)) and "changed" not in note


def answers(configs: list[Config]) -> list[Any]:
    """What run.json notes of each beginning, or why it was refused."""
    found = []
    for one in configs:
        try:
            on_trainer(one, begun)
            found.append(json.loads((Path(one.run) / "run.json").read_text()).get("init_from"))
        except ConfigError as error:
            found.append(str(error))
    return found


def test_what_does_not_fit_is_refused_in_one_line(
    runs: Path, toy_manifest: Path, tmp_path: Path
) -> None:
    export(runs / "shared", exported := tmp_path / "exported")

    def variant(name: str, file: str, old: str, new: str) -> Path:
        place = shutil.copytree(exported, tmp_path / name)
        text = (place / file).read_text()
        assert old in text
        (place / file).write_text(text.replace(old, new))
        return place

    printed = shutil.copytree(exported, tmp_path / "printed") / "tokenizer.json"
    printed.write_text(json.dumps(json.loads(printed.read_text()), indent=7))
    bare = shutil.copytree(exported, tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    empty = shutil.copytree(exported, tmp_path / "empty")
    (empty / "model.safetensors").unlink()
    cases: list[tuple[Path, tuple[str, ...], str | None]] = [
        (exported, (), None),
        (printed.parent, (), None),  # other bytes, the same tokens
        (runs / "shared", ("model.heads=8",), "model.heads is 4 there, 8 here"),
        (exported, ("model.kv_heads=1",), "model.kv_heads is 2 there, 1 here"),
        (exported, ("model.tied=true",), "model.tied is False there, True here"),
        (exported, ("model.vocab=300",), "model.vocab is 258 there, 300 here"),
        (
            variant("swapped", "tokenizer.json", '"id": 256', '"id": 259'),
            (),
            "another tokenizer: SHA-256",
        ),
        (bare, (), "not there, so that tokenizers cannot be compared"),
        (empty, (), "no tensor model.embed_tokens.weight"),
        (
            variant("biased", "config.json", '"attention_bias": false', '"attention_bias": true'),
            (),
            "attention_bias is True",
        ),
        (variant("gpt", "config.json", '"llama"', '"gpt2"'), (), "model_type 'gpt2'"),
        (tmp_path / "nothing", (), "no complete checkpoint"),
    ]
    configs = [
        config(toy_manifest, tmp_path / f"run-{n}", *ODD, f"checkpoint.init_from={source}", *more)
        for n, (source, more, _) in enumerate(cases)
    ]
    rope = (f"checkpoint.init_from={exported}", "model.rope_theta=10000.0")
    configs.append(config(toy_manifest, tmp_path / "rope", *ODD, *rope))
    [[*found, changed]] = run_ranks(1, answers, configs)
    for (source, _, said), answer in zip(cases, found, strict=True):
        if said is None:
            assert answer == {"from": str(source)}
        else:
            assert answer.startswith("checkpoint.init_from: ") and "\n" not in answer
            assert said in answer
    assert changed == {"from": str(exported), "changed": {"rope_theta": [500.0, 10000.0]}}
