"""The history of a run: series, curves, JSON, the race table; and the copy on the disk."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import losscore
from losscore.errors import LosscoreError, ModelError
from losscore.finetuning import FineTune, Record, race_table
from losscore.models import loading
from losscore.objectives import Objective, find
from tests.models.tiny import CONFIGS, save
from tests.tiny import mini_model

TEXT = "They cost 2 * 13 = 26 euros."


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in JSON")

    return json.loads(text, parse_constant=refuse)


def recorded(objective: Objective | str = "nll", steps: int = 3, **options: Any) -> Record:
    tuning = FineTune(mini_model(), [TEXT, "words"], objective=objective, steps=steps, lr=1e-2, **options)
    record = tuning.record()
    for snapshot in tuning:
        record.add(snapshot)
    return record


def test_series_and_curves_are_the_snapshots_own():
    record = recorded(probes=["Some words."])
    series = record.series("p")
    assert series.shape == (4, len(record.snapshots[0].sheet()))
    assert np.isnan(series[:, 0]).all()
    assert (series[-1, 1:] > series[0, 1:]).mean() > 0.7
    assert record.curve("nll") == [snapshot.nll for snapshot in record.snapshots]
    assert record.curve("gradient_norm")[-1] is None
    assert record.seconds == pytest.approx(sum(snapshot.seconds for snapshot in record.snapshots))
    with pytest.raises(ValueError, match="curve"):
        record.curve("speed")
    kl, change = record.forgetting()
    assert kl == record.snapshots[-1].probes[0].kl > 0
    assert change == record.snapshots[-1].probes[0].nll_change


def test_json_holds_every_step_and_every_setting():
    record = recorded("del_loss", probes=["Some words."], accumulation=2)
    record.ended = "finished after 3 steps"
    table = strict(record.to_json())
    assert table["provenance"]["settings"]["accumulation"] == 2
    assert table["provenance"]["settings"]["lr"] == 1e-2
    assert table["provenance"]["objective"] == "del_loss"
    assert table["provenance"]["ended"] == "finished after 3 steps"
    assert [one["step"] for one in table["snapshots"]] == [0, 1, 2, 3]
    assert "".join(bytes.fromhex(data).decode() for data in table["tokens"][0]["bytes"]) == TEXT
    for one, snapshot in zip(table["snapshots"], record.snapshots, strict=True):
        assert one["examples"][0]["p"][0] is None
        np.testing.assert_allclose(one["examples"][0]["p"][1:], snapshot.sheet().columns["p"][1:])
        assert one["nll"] == snapshot.nll
    assert table["snapshots"][-1]["gradient_norm"] is None
    assert len(table["snapshots"][0]["examples"]) == 2


def test_forgetting_is_that_of_the_latest_look():
    record = recorded(probes=["Some words."], probe_every=1)
    looks = [snapshot.probes[0] for snapshot in record.snapshots if snapshot.probes]
    assert len({look.kl for look in looks}) == len(looks) == 3
    assert record.forgetting() == (looks[-1].kl, looks[-1].nll_change)


def test_two_settings_of_one_objective_have_names_of_their_own_in_the_race():
    objectives = [find("talr"), find("talr").with_parameters(tau=2)]
    frame = race_table([recorded(objective, steps=1) for objective in objectives])
    assert list(frame["objective"]) == ["before", "TALR", "talr:tau=2"]


def test_json_is_strict_where_a_text_elsewhere_is_ruled_out():
    record = recorded(steps=1, probes=["Some words."])
    lost = replace(record.snapshots[-1].probes[0], nll=float("inf"), kl=float("nan"))
    record.snapshots[-1] = replace(record.snapshots[-1], probes=(lost,))
    (probe,) = strict(record.to_json())["snapshots"][-1]["probes"]
    assert probe["nll"] is probe["kl"] is None
    assert probe["tokens"] == lost.tokens


def test_a_record_with_nothing_in_it_yet():
    record = FineTune(mini_model(), TEXT).record()
    assert record.forgetting() is None
    assert record.series("p").size == 0
    assert strict(record.to_json())["snapshots"] == []
    assert race_table([record]).empty


def test_the_race_table_starts_with_where_all_began():
    records = [recorded(name, probes=["Some words."]) for name in ("nll", "deft")]
    frame = race_table(records)
    assert list(frame["objective"]) == ["before", "NLL", "DEFT"]
    assert list(frame["steps"]) == [0, 3, 3]
    assert frame["nll"][0] == records[0].snapshots[0].nll == records[1].snapshots[0].nll
    assert frame["kl_elsewhere"][0] == 0
    assert frame["p"][1] == records[0].snapshots[-1].p
    assert frame["digit_entropy"][2] == records[1].snapshots[-1].digit_entropy


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save(CONFIGS["llama-tied"](), tmp_path / "base")


def test_the_adapter_loads_again_here_and_with_peft_alone(base, tmp_path, monkeypatch):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a connection was opened")

    model = losscore.load(str(base))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    tuning = FineTune(model, TEXT, steps=3, lr=1e-2)
    *_, last = tuning
    tuning.save(tmp_path / "adapter")
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "losscore.json",
    ]
    again = losscore.load(str(tmp_path / "adapter"))
    assert again.name == "adapter"
    np.testing.assert_allclose(
        losscore.score(again, TEXT).columns["log_p"], last.sheet().columns["log_p"], rtol=1e-5, atol=1e-6
    )
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(tmp_path / "adapter"))
    ids = torch.tensor([model.encoder.encode(TEXT).ids])
    with torch.no_grad():
        expected = tuning.tuned("tuned").network(ids).logits
        torch.testing.assert_close(plain(input_ids=ids).logits, expected, rtol=1e-5, atol=1e-5)
        assert (expected - model.network(ids).logits).abs().max() > 0.01


def test_a_full_fine_tune_is_saved_as_a_model_of_its_own(base, tmp_path):
    tuning = FineTune(losscore.load(str(base)), TEXT, steps=2, lr=1e-3, method="full")
    *_, last = tuning
    tuning.save(tmp_path / "whole")
    again = losscore.load(str(tmp_path / "whole"))
    np.testing.assert_allclose(
        losscore.score(again, TEXT).columns["log_p"], last.sheet().columns["log_p"], rtol=1e-5, atol=1e-6
    )


def test_saving_asks_nobody_about_a_base_from_the_hub(base, tmp_path, monkeypatch):
    asked: list[Any] = []

    def note(*given: Any, **_: Any) -> Any:
        asked.append(given)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", note)
    monkeypatch.setattr(socket.socket, "connect", note)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    model = replace(losscore.load(str(base)), name="someone/model", origin="someone/model")
    model.network.config.name_or_path = "someone/model"
    FineTune(model, TEXT, steps=0).save(tmp_path / "adapter")
    assert asked == []
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "someone/model"
    assert json.loads((tmp_path / "adapter" / "losscore.json").read_text())["base"] == "someone/model"


def test_others_may_read_what_was_saved_as_any_new_folder(base, tmp_path):
    FineTune(losscore.load(str(base)), TEXT, steps=0).save(tmp_path / "adapter")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "adapter").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_full_fine_tune_of_a_model_once_quantised_is_saved_as_a_plain_one(base, tmp_path):
    model = losscore.load(str(base))
    model.network.config.quantization_config = {"quant_method": "gguf"}
    tuning = FineTune(model, TEXT, steps=1, lr=1e-3, method="full")
    list(tuning)
    tuning.save(tmp_path / "whole")
    again, ids = losscore.load(str(tmp_path / "whole")), torch.tensor([[5, 9, 200, 31]])
    with torch.no_grad():
        assert torch.equal(again.network(ids).logits, tuning.tuned("tuned").network(ids).logits)


def test_what_is_there_is_never_overwritten_and_nothing_half_written_stays(base, tmp_path, monkeypatch):
    tuning = FineTune(losscore.load(str(base)), TEXT, steps=0)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "note.txt").write_text("mine")
    with pytest.raises(LosscoreError, match="not an empty folder"):
        tuning.save(tmp_path / "taken")
    assert (tmp_path / "taken" / "note.txt").read_text() == "mine"

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tuning._copy.adapter, "save_pretrained", fail)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(LosscoreError, match="No space left"):
        tuning.save(tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_broken_adapters_get_a_sentence(base, tmp_path):
    tuning = FineTune(losscore.load(str(base)), TEXT, steps=0)
    folder = tmp_path / "adapter"
    tuning.save(folder)
    marker = (folder / "losscore.json").read_text()
    (folder / "losscore.json").write_text(json.dumps({"base": str(folder)}))
    with pytest.raises(ModelError, match="another adapter"):
        losscore.load(str(folder))
    (folder / "losscore.json").write_text("{")
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": None}))
    with pytest.raises(ModelError, match="does not say"):
        losscore.load(str(folder))
    (folder / "losscore.json").write_text(json.dumps({**json.loads(marker), "base": str(base)}))
    weights = (folder / "adapter_model.safetensors").read_bytes()
    (folder / "adapter_model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ModelError, match="does not fit"):
        losscore.load(str(folder))
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match="save it as safetensors"):
        losscore.load(str(folder))
    assert loading.is_adapter(folder)
