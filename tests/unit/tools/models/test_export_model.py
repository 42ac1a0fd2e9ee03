"""A model's folder for other libraries: its files, card and revisions; tests/parity loads it with them."""

import base64
import json
import re
import shutil
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import write_json
from pipeline_src.interpretation.model import ProbedModel
from pipeline_src.tools import export
from tests.hub_server import serve

LAYOUT = {"modules.json", "sentence_bert_config.json", "1_Pooling", "README.md"}


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_export_sentence_transformers_writes_its_layout_and_card(folder, call, tmp_path):
    (folder / "training_state").mkdir()
    write_json(folder / "tokenizer_config.json", read(folder / "tokenizer_config.json") | {"model_max_length": 512})
    for given, parts in (((), 2), (("--pooling", "cls", "--normalise"), 3)):
        made = tmp_path / f"made{parts}"
        call(export, made, "--format", "sentence-transformers", "--model", folder, *given)
        modules = read(made / "modules.json")
        assert [module["type"].rpartition(".")[2] for module in modules] == ["Transformer", "Pooling", "Normalize"][
            :parts
        ]
        pooling = read(made / "1_Pooling/config.json")
        assert pooling["word_embedding_dimension"] == 16 and pooling["pooling_mode_cls_token"] == (parts == 3)
        assert pooling["pooling_mode_mean_tokens"] == (parts == 2) and not pooling["pooling_mode_max_tokens"]
        assert read(made / "sentence_bert_config.json")["max_seq_length"] == 12
        assert read(made / "tokenizer_config.json")["model_max_length"] == 12
        names = {path.name for path in folder.iterdir() if path.is_file()}
        assert {path.name for path in made.iterdir()} - {"2_Normalize"} == names | LAYOUT
        _, front, body = (made / "README.md").read_text(encoding="utf-8").split("---\n", 2)
        assert yaml.safe_load(front)["library_name"] == "sentence-transformers"
        assert ("the first of its tokens' vectors, divided by its length" in body) == (parts == 3)
    ProbedModel.open(made)  # the folder is still one of this project


STEPS = {"phase1": 30, "phase1/steps/10": 10, "phase2": 40, "phase2/steps/35": 35}


@pytest.fixture
def pretrained(folder, tmp_path, monkeypatch):
    """The folder models/pretrained of a study whose phases ended at steps 30 and 40."""
    monkeypatch.chdir(tmp_path)
    root = Path("models/pretrained")
    for subfolder, step in STEPS.items():
        shutil.copytree(folder, root / subfolder)
        write_json(root / subfolder / "README.md", {"step": step})
        (root / subfolder / "training_state").mkdir()
        write_json(root / subfolder / "training_state/state.json", {"step": step})
    write_results()
    return root


def write_results(words_per_step=0, pairs="nsp"):
    """Write results of the two phases, in a corpus of two tokens a word."""
    identity, num_special = {"seed": 7, "data": {"tokens": "a1"}}, 3 if pairs == "nsp" else 2
    for phase, before, steps in (("phase1", 0, 30), ("phase2", 30, 10)):
        cost = {"sequences": 16 * steps, "tokens": (2 * words_per_step + num_special * 16) * steps}
        results = {"steps_before": before, "steps": steps, "batch": 16, "pairs": pairs, "cost": cost}
        write_json(f"results/pretrain/{phase}.json", results | {"ledger": {"identity": identity}})
    part = {"words": 10, "train": {"tokens": 15}, "validation": {"tokens": 5}}
    examples = {phase: {"train": {"examples": 100}} for phase in ("phase1", "phase2")}
    write_json("results/corpus.json", {"parts": {"books": part, "wikipedia": part}, "examples": examples})


def test_export_hub_writes_a_folder_for_each_kept_model(pretrained, call, tmp_path, capsys):
    call(export, tmp_path / "hub", "--format", "hub")
    output = capsys.readouterr().out
    steps = {"main": 40, "step-10": 10, "step-30": 30, "step-35": 35}
    assert {path.name for path in (tmp_path / "hub").iterdir()} == steps.keys()
    for name, step in steps.items():
        assert f'"step": {step}' in (tmp_path / "hub" / name / "README.md").read_text()
        assert f"hf upload USER/NAME {tmp_path}/hub/{name} . --revision {name} --delete '*'\n" in output
        phases = read(tmp_path / "hub" / name / "data_order.json")["phases"]
        shared = {"train_batch_size": 16, "num_examples": 100, "seed": 7, "data": {"tokens": "a1"}}
        assert phases["phase1"] == {"first_step": 0, "last_step": 30, **shared}
        assert phases["phase2"] == {"first_step": 30, "last_step": 40, **shared}
    call(export, tmp_path / "first", "--format", "hub", "--model", pretrained.resolve() / "phase1")
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == ["main", "step-10"]
    assert read(tmp_path / "first/main/data_order.json")["phases"].keys() == {"phase1"}


def test_export_hub_of_another_study_has_no_data_order(pretrained, call, tmp_path):
    shutil.move(pretrained, "elsewhere")
    call(export, "hub", "--format", "hub", "--model", "elsewhere/phase2")
    assert {path.name for path in Path("hub").iterdir()} == {"main", "step-10", "step-30", "step-35"}
    assert not list(Path("hub").rglob("data_order.json"))
    with pytest.raises(PipelineError, match="no phase of this study trained the model: elsewhere/phase2"):
        call(export, "named", "--format", "hub", "--babylm", "--model", "elsewhere/phase2")


@pytest.mark.parametrize("pairs", ["nsp", "none"])
def test_export_hub_babylm_names_models_by_words(pretrained, call, capsys, pairs):
    write_results(98_000, pairs)  # words after the kept steps: 0.98, 2.94, 3.43 and 3.92 million
    call(export, "hub", "--format", "hub", "--babylm")
    assert {path.name for path in Path("hub").iterdir()} == {"main", "chck_1M", "chck_3M", "step-35", "chck_4M"}
    assert "no model near chck_2M: pretrain.keep_checkpoint_steps: [20] would keep them" in capsys.readouterr().out
    for name, step in {"main": 40, "chck_1M": 10, "chck_3M": 30, "chck_4M": 40}.items():
        assert f'"step": {step}' in Path("hub", name, "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (1_000, r"0\.04 million words in all\n.*\n.*leave it out, or train"),
        (37_000, r"1\.48 million words in all\n.*\n.*keep_checkpoint_steps: \[27\]"),
    ],
)
def test_export_hub_babylm_without_a_model_to_name_is_rejected(pretrained, call, words, message):
    write_results(words)
    with pytest.raises(PipelineError, match=message):
        call(export, "hub", "--format", "hub", "--babylm")
    assert not Path("hub").exists()


class Hub(BaseHTTPRequestHandler):
    """The addresses of a hub that an upload of small files needs; ``server.pushed`` is revision -> path -> bytes."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if match := re.match(r"/api/models/owner/name/tree/([^/?]+)", self.path):
            files = self.server.pushed[match[1]]
            return self.answer(200, [{"type": "file", "path": path, "size": 1, "oid": "0" * 40} for path in files])
        if match := re.match("/api/models/owner/name/revision/", self.path):
            return self.answer(200, {"id": "owner/name", "sha": "0" * 40, "siblings": []})
        assert self.path == "/api/whoami-v2"
        if self.headers["Authorization"] == "Bearer right":
            self.answer(200, {"name": "owner"})
        else:
            self.answer(401, {"error": "Invalid username or password."})

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def do_POST(self):
        lines = [json.loads(line) for line in self.body().splitlines()]
        action, _, revision = self.path.removeprefix("/api/models/owner/name/").partition("/")
        address = f"http://127.0.0.1:{self.server.server_port}/owner/name"
        if self.path == "/api/repos/create":
            assert (lines[0]["organization"], lines[0]["name"]) == ("owner", "name")
            self.answer(200, {"url": address})
        elif self.path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif action == "branch":
            self.server.pushed.setdefault(revision, {})
            self.answer(200, {})
        elif action == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in lines[0]["files"]]
            self.answer(200, {"files": [{**file, "shouldIgnore": False} for file in files]})
        else:
            assert action == "commit"
            if revision == self.server.broken:
                return self.answer(500, {"error": "out of order, Bearer secret"})
            for line in lines:
                if line["key"] == "deletedFile":
                    del self.server.pushed[revision][line["value"]["path"]]
            files = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
            self.server.pushed[revision] |= {path: base64.b64decode(content) for path, content in files.items()}
            self.answer(200, {"commitUrl": f"{address}/commit/{'0' * 40}", "commitOid": "0" * 40})


@pytest.fixture
def hub(monkeypatch):
    """A hub on this machine, to which huggingface_hub uploads."""
    with serve(Hub) as server:
        server.pushed, server.broken = {"main": {"old.bin": b"of an earlier upload"}}, None
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # other tests set it
        monkeypatch.setenv("HF_TOKEN", "right")
        yield server


def test_export_hub_push_uploads_each_revision(pretrained, call, hub, capsys):
    call(export, "made", "--format", "hub", "--push", "owner/name")
    assert hub.pushed.keys() == {"main", "step-10", "step-30", "step-35"}
    for name, files in hub.pushed.items():
        folder = Path("made", name)
        assert files == {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        assert {"README.md", "model.safetensors", "data_order.json"} <= files.keys()
    assert "hf upload" not in capsys.readouterr().out


@pytest.mark.parametrize("fault", ["token", "network"])
def test_export_hub_push_refused_is_an_error_before_any_work(pretrained, call, hub, monkeypatch, fault):
    if fault == "token":
        monkeypatch.setenv("HF_TOKEN", "wrong")
    else:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(PipelineError, match="takes no upload: owner/name\n.*(Invalid|refused).*\n.*HF_TOKEN"):
        call(export, "made", "--format", "hub", "--push", "owner/name")
    assert not Path("made").exists() and hub.pushed.keys() == {"main"}


def test_export_hub_push_failed_upload_names_the_commands_for_the_others(pretrained, call, hub):
    hub.broken = "step-30"
    with pytest.raises(PipelineError, match="takes no upload: owner/name") as caught:
        call(export, "made", "--format", "hub", "--push", "owner/name")
    uploads = [line.split()[3] for line in str(caught.value).splitlines() if line.strip().startswith("hf upload")]
    assert uploads == ["made/step-30", "made/step-35", "made/main"]
    assert "secret" not in str(caught.value) and Path("made/main/config.json").exists()


def test_export_hub_push_bad_name_is_an_error(pretrained, call, hub):
    with pytest.raises(PipelineError, match="takes no upload: a b"):
        call(export, "made", "--format", "hub", "--push", "a b")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--model", "nowhere"), "no model here: nowhere"),
        (("--push", "a/b"), "an option of another format: --push"),
        (("--phase", "phase2"), "an option of another format: --phase\n  where:  --format sentence-transformers"),
    ],
)
def test_export_model_bad_option_is_rejected_and_writes_nothing(folder, call, tmp_path, given, message):
    with pytest.raises(PipelineError, match=message):
        call(export, tmp_path / "made", "--format", "sentence-transformers", "--model", folder, *given)
    assert not (tmp_path / "made").exists()
