"""Borders where data enters, and cases for each: files and replies by the grammar of their format, then damaged.

A border is a function of a random generator and an empty folder, which it may write to. It returns when the case was
taken, raises PipelineError when it was refused, and anything else is a defect.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks._replies import reply, replying
from pipeline_src.books.clean_books import clean_piece
from pipeline_src.books.encodings import check_encoding
from pipeline_src.books.rows import ROW_READERS
from pipeline_src.books.shelf import find_books, read_shelf, suffix_of
from pipeline_src.common.files import hash_file
from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.models.hub import load_config
from pipeline_src.models.tensors import read_tensors
from pipeline_src.params.books import BooksParams
from pipeline_src.params.machine import load_machine
from pipeline_src.params.study import load_study
from pipeline_src.sources import https
from pipeline_src.sources.archive import unpack
from pipeline_src.sources.catalogue import Source, resolve
from pipeline_src.tasks.files.conll import read_sentences
from pipeline_src.tasks.files.reading import READERS, read_columns
from pipeline_src.tasks.files.spec import Columns, Layout, TaskSpec, load_spec
from pipeline_src.tasks.files.squad import read_questions

ODD = [
    *("", " ", "..", "../x", "/etc/x", "a/b", "-rf", "$(touch x)", "a; touch x", "\0", "\ud800", "ü", "\x1b[31m", "²"),
    *("nan", "inf", "-1", "010", "1e999", "9" * 400, "yes", "~", "{", "{0}", "<script>", "|", "a\nb", "\r\n", "\ufeff"),
]  # fmt: skip
WORDS = "The old man went to the café and said “no” — £5 for a well-\nknown [1] house.\n\nHe left.\n\n| a |\n".split(
    " "
)
Draw = random.Random
Border = Callable[[Draw, Path], None]


def damaged(draw: Draw, data: bytes) -> bytes:
    """The bytes with up to three faults: bits flipped, parts cut, doubled or put in."""
    for _ in range(draw.randint(0, 3)):
        start = draw.randint(0, len(data))
        end = min(len(data), start + draw.choice([1, 1, 4, 100]))
        part = data[start:end]
        kinds: list[bytes] = [
            b"", part * 2, bytes(byte ^ 1 << draw.randrange(8) for byte in part), draw.randbytes(len(part)),
            draw.choice(ODD).encode("utf-8", "surrogatepass"), b"[" * draw.choice([3, 3000]),
        ]  # fmt: skip
        data = data[:start] + draw.choice(kinds) + data[end:]
    return data


def value(draw: Draw, depth: int = 0) -> Any:
    """A value of JSON or YAML."""
    kind = draw.randrange(8 if depth < 4 else 6)
    if kind >= 6:
        count = draw.randrange(4)
        if kind == 6:
            return [value(draw, depth + 1) for _ in range(count)]
        return {draw.choice([*ODD, "text", "label", "id"]): value(draw, depth + 1) for _ in range(count)}
    plain = [None, True, draw.randint(-3, 99), 10 ** draw.randint(9, 40), draw.uniform(-2, 2), float("inf")]
    return draw.choice([draw.choice(ODD), draw.choice(plain)])


def mutated(draw: Draw, tree: Any) -> Any:
    """The tree with one of its values put out, doubled or replaced."""
    if not isinstance(tree, dict | list) or not tree or draw.random() < 0.2:
        return value(draw)
    copy = tree.copy()
    key = draw.choice(list(copy)) if isinstance(copy, dict) else draw.randrange(len(copy))
    if draw.random() < 0.1:
        del copy[key]
    elif isinstance(copy, dict) and draw.random() < 0.1:
        copy[draw.choice(ODD)] = copy[key]
    else:
        copy[key] = mutated(draw, copy[key])
    return copy


def _archives(draw: Draw, folder: Path) -> None:
    file = io.BytesIO()
    names = [draw.choice(["a", "b/a", *ODD[2:7]]) for _ in range(draw.randint(1, 3))]
    data = draw.randbytes(50) * draw.randint(0, 40)
    if draw.random() < 0.5:
        with zipfile.ZipFile(file, "w", draw.choice([0, 8, 12, 14])) as zipped:
            for name in dict.fromkeys(names):
                zipped.writestr(name, data)
    else:
        mode: Any = f"w:{draw.choice(['', 'gz', 'bz2', 'xz'])}"
        with tarfile.open(fileobj=file, mode=mode) as tar:
            for name in names:
                entry = tarfile.TarInfo(name.encode("utf-8", "replace").decode())
                entry.type = draw.choice([tarfile.REGTYPE] * 3 + [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
                entry.linkname = draw.choice(["a", "../x", "/etc/hostname", "b/a"])
                entry.size = draw.choice([len(data), len(data), 0, 10**12, -5]) if entry.isreg() else 0
                if entry.isreg() and not 0 <= entry.size <= len(data):  # of which Python 3.13 makes no archive
                    header = entry.tobuf(encoding="utf-8", errors="surrogateescape")
                    tar.fileobj.write(header)  # type: ignore[union-attr]
                    tar.offset += len(header)
                else:
                    tar.addfile(entry, io.BytesIO(data) if entry.size else None)
    (folder / "archive").write_bytes(damaged(draw, file.getvalue()))
    (folder / "to").mkdir()
    unpack(folder / "archive", {"x": draw.choice(names), "y/z": "a"}, folder / "to", "archive")


def _replies(draw: Draw, folder: Path) -> None:
    body = draw.randbytes(draw.choice([0, 1, 100, 100_000]))
    headers = {
        name: draw.choice(["0", str(len(body)), "chunked", "text/html", "gzip", '"tag"', "bytes 0-9/10", *ODD[:14]])
        for name in draw.sample(
            ["Content_Length", "Content_Range", "Content_Type", "Content_Encoding", "Transfer_Encoding", "ETag",
             "Retry_After", "Location"], draw.randint(0, 3))
    }  # fmt: skip
    status = draw.choice(["200 OK", "200 OK", "206 Part", "204 No", "301 Moved", "404 \x1b[1m", "416 No", "503 Busy"])
    sent = reply(status, body, **{name: text.replace("\n", "").replace("\r", "") for name, text in headers.items()})
    with replying([damaged(draw, sent) for _ in range(2)]) as address:
        https.download([address], folder / "file", draw.choice([None, len(body)]), checked=draw.random() < 0.3)
    assert (folder / "file").exists()


def _params(draw: Draw, folder: Path) -> None:
    path = folder / "params.yaml"
    text = Path("params.yaml").read_text(encoding="utf-8")
    if draw.random() < 0.5:
        path.write_bytes(damaged(draw, text.encode()))
    else:
        path.write_text(json.dumps(mutated(draw, yaml.safe_load(text))), encoding="utf-8")
    load_study(path)


def _machine(draw: Draw, folder: Path) -> None:
    path = folder / "machine.yaml"
    path.write_bytes(damaged(draw, Path("machine.yaml").read_bytes()))
    load_machine(path)


def _yaml(draw: Draw, folder: Path) -> None:
    text = draw.choice([yaml.safe_dump(value(draw)), "".join(draw.choices("ab:[]{}&*!|>-?'\"#%@`, \n\t01.", k=40))])
    try:
        parse_yaml(text)
    except ValueError as error:
        assert str(error).isprintable(), error


def _catalogue(draw: Draw, folder: Path) -> None:
    from pydantic import ValidationError

    names = ["sources/enwiki", "task_sources/mnli", "tasks/mnli", "tasks/ner", "tasks/stsb"]
    name = draw.choice(names)
    entry = mutated(draw, yaml.safe_load(Path(f"pipeline_src/catalogue/{name}.yaml").read_text(encoding="utf-8")))
    try:
        if name.startswith("tasks/"):
            TaskSpec.model_validate({"name": "mine", **entry} if isinstance(entry, dict) else entry)
        else:
            resolve("mine", Source.model_validate(entry), date="20260901", part="1-p1p2")
    except ValidationError:
        pass


def _tables(draw: Draw, folder: Path) -> None:
    suffix = draw.choice(list(READERS))
    rows = [{"text": draw.choice([*ODD, "a b"]), "label": draw.choice(["0", "1", *ODD])} for _ in range(5)]
    separator = "\t" if suffix == ".tsv" else ","
    lines = ["text" + separator + "label", *(separator.join(row.values()) for row in rows)]
    text = "\n".join(map(json.dumps, rows)) if suffix == ".jsonl" else "\n".join(lines)
    path = folder / f"a{suffix}"
    path.write_bytes(damaged(draw, text.encode("utf-8", "replace")))
    layout = Layout(Columns(texts=("text",), label="label"), True, ("0", "1"), draw.random() < 0.5)
    for _, fields in read_columns("mine", path, layout, Counter()):
        "".join(fields.values()).encode()


def _tagged(draw: Draw, folder: Path) -> None:
    name = draw.choice(["ner", "pos"])
    line = "EU NNP B-NP B-ORG\n" if name == "ner" else "1\tA\ta\tDET\t_\t_\t2\tdet\t_\t_\n"
    text = draw.choice(["", "-DOCSTART- -X- O O\n\n", "# newdoc\n"]) + (line * draw.randint(1, 4) + "\n") * 2
    (folder / "a.txt").write_bytes(damaged(draw, text.encode()))
    read_sentences(load_spec(name), folder / "a.txt", counts=Counter())


def _squad(draw: Draw, folder: Path) -> None:
    question = {"id": "1", "question": "Who?", "is_impossible": False, "answers": [{"text": "a", "answer_start": 0}]}
    tree: Any = {"data": [{"paragraphs": [{"context": "a b c", "qas": [question]}]}]}
    text = json.dumps(mutated(draw, tree) if draw.random() < 0.7 else tree)
    (folder / "a.json").write_bytes(damaged(draw, text.encode()) if draw.random() < 0.5 else text.encode())
    read_questions(load_spec(draw.choice(["squad1", "squad2"])), folder / "a.json", counts=Counter())


def _books(draw: Draw, folder: Path) -> None:
    suffix = draw.choice([".txt", ".md", *(each for each in ROW_READERS if each != ".parquet")])
    text = " ".join(draw.choices(WORDS, k=draw.choice([5, 200])))
    data = text.encode(draw.choice(["utf-8", "cp1252", "mac-roman", "utf-16", "cp437"]), "replace")
    if suffix in ROW_READERS:
        rows = [mutated(draw, {"id": 1, "title": "t", "text": text}) for _ in range(draw.randint(1, 3))]
        data = "\n".join(map(json.dumps, rows)).encode()
    if suffix.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    (folder / f"book{suffix}").write_bytes(damaged(draw, data))
    params = BooksParams(source="x", encoding=draw.choice([None, None, None, "cp1252", "utf-16", "idna"]))
    check_encoding(params.encoding)
    paths = find_books(folder)
    for piece in read_shelf(paths, 1000, params.encoding, params.text_column, Counter()):
        assert suffix_of(piece.path) == suffix
        clean_piece(piece, params).document.text.encode()


def _models(draw: Draw, folder: Path) -> None:
    config: dict[str, Any] = {
        "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9,
        "intermediate_size": 8, "max_position_embeddings": 8, "type_vocab_size": 2, "hidden_act": "gelu",
    }  # fmt: skip
    kept = json.dumps(mutated(draw, config) if draw.random() < 0.5 else config).encode()
    (folder / "config.json").write_bytes(damaged(draw, kept) if draw.random() < 0.5 else kept)
    tensor = {"dtype": draw.choice(["F32", "F16", "X"]), "shape": [2, 2], "data_offsets": [0, 16]}
    header = json.dumps(mutated(draw, {"a": tensor}) if draw.random() < 0.5 else {"a": tensor}).encode()
    data = struct.pack("<Q", draw.choice([len(header), len(header), 0, 2**63])) + header + b"\0" * 16
    (folder / "model.safetensors").write_bytes(damaged(draw, data))
    names = load_config(Path("models/none") if draw.random() < 0.05 else folder).names
    read_tensors(folder, names)


BORDERS: dict[str, Border] = {
    "archives": _archives,
    "replies": _replies,
    "params": _params,
    "machine": _machine,
    "yaml": _yaml,
    "catalogue": _catalogue,
    "tables": _tables,
    "tagged words": _tagged,
    "squad": _squad,
    "books": _books,
    "models": _models,
}


def listing(folder: Path) -> dict[str, str]:
    """The files below a folder, with their sums."""
    return {str(path.relative_to(folder)): hash_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}
