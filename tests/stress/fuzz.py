"""Give damaged and hostile input to every border where data of others enters.

``python -m tests.stress.fuzz --minutes N --seed S``. A border is a function of a random generator and an empty folder,
which it may write to: files and replies by the grammar of their format, then damaged. Each case must be taken or
refused in one PipelineError, within ten seconds, and leave no file outside its folder. All others are printed with
their seed: ``--only BORDER --case SEED`` runs one again.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import gzip
import io
import json
import logging
import os
import random
import signal
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline_src.base.files import hash_file
from pipeline_src.base.mistakes import explain
from pipeline_src.base.progress import PLAIN, log
from pipeline_src.model.bert import BertConfig, BertForPretraining
from pipeline_src.model.hub import load_config, read_tensors, save_model
from pipeline_src.pretrain import import_model
from pipeline_src.sources import https
from pipeline_src.sources.archive import unpack
from pipeline_src.study.data import BooksParams
from pipeline_src.study.task_spec import Columns, Layout, load_spec
from pipeline_src.tasks.readers import READERS, read_columns, read_questions, read_sentences
from pipeline_src.text.books.clean_books import clean_document
from pipeline_src.text.books.encodings import check_encoding
from pipeline_src.text.books.readers import ROW_READERS, find_books, read_books, suffix_of
from pipeline_src.tokenizer.foreign_tokenizer import read_foreign
from pipeline_src.tokenizer.load import load_tokenizer, reading_masks
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer, save_tokenizer
from pipeline_src.tools.fill_mask import fill_mask
from pipeline_src.tools.inspect import open_masked_lm
from tests.replies import reply, replying
from tests.unit.text.books.published import epub_files, html_page, write_zip

HOSTILE = [
    *("", " ", "..", "../x", "/etc/x", "a/b", "-rf", "$(touch x)", "a; touch x", "\0", "\ud800", "ü", "\x1b[31m", "²"),
    *("nan", "inf", "-1", "010", "1e999", "9" * 400, "yes", "~", "{", "{0}", "<xss>", "|", "a\nb", "\r\n", "\ufeff"),
]  # fmt: skip
WORDS = "The old man went to the café and said “no” — £5 for a well-\nknown [1] house.\n\nHe left.\n\n| a |\n".split(
    " "
)
MAX_SECONDS = 10  # seconds of one case
MAX_SHOWN = 20  # defects that are printed whole
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
            draw.choice(HOSTILE).encode("utf-8", "surrogatepass"), b"[" * draw.choice([3, 3000]),
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
        return {draw.choice([*HOSTILE, "text", "label", "id"]): value(draw, depth + 1) for _ in range(count)}
    plain = [None, True, draw.randint(-3, 99), 10 ** draw.randint(9, 40), draw.uniform(-2, 2), float("inf")]
    return draw.choice([draw.choice(HOSTILE), draw.choice(plain)])


def mutated(draw: Draw, tree: Any) -> Any:
    """The tree with one of its values put out, doubled or replaced."""
    if not isinstance(tree, dict | list) or not tree or draw.random() < 0.2:
        return value(draw)
    copy = tree.copy()
    key = draw.choice(list(copy)) if isinstance(copy, dict) else draw.randrange(len(copy))
    if draw.random() < 0.1:
        del copy[key]
    elif isinstance(copy, dict) and draw.random() < 0.1:
        copy[draw.choice(HOSTILE)] = copy[key]
    else:
        copy[key] = mutated(draw, copy[key])
    return copy


def _archives(draw: Draw, folder: Path) -> None:
    file = io.BytesIO()
    names = [draw.choice(["a", "b/a", *HOSTILE[2:7]]) for _ in range(draw.randint(1, 3))]
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
        name: draw.choice(["0", str(len(body)), "chunked", "text/html", "gzip", '"tag"', "bytes 0-9/10", *HOSTILE[:14]])
        for name in draw.sample(
            ["Content_Length", "Content_Range", "Content_Type", "Content_Encoding", "Transfer_Encoding", "ETag",
             "Retry_After", "Location"], draw.randint(0, 3))
    }  # fmt: skip
    status = draw.choice(["200 OK", "200 OK", "206 Part", "204 No", "301 Moved", "404 \x1b[1m", "416 No", "503 Busy"])
    sent = reply(status, body, **{name: text.replace("\n", "").replace("\r", "") for name, text in headers.items()})
    with replying([damaged(draw, sent) for _ in range(2)]) as address:
        https.download([address], folder / "file", draw.choice([None, len(body)]), checked=draw.random() < 0.3)
    assert (folder / "file").exists()


def _tables(draw: Draw, folder: Path) -> None:
    suffix = draw.choice(list(READERS))
    rows = [{"text": draw.choice([*HOSTILE, "a b"]), "label": draw.choice(["0", "1", *HOSTILE])} for _ in range(5)]
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
    suffix = draw.choice([".txt", ".md", ".html", ".epub", *(name for name in ROW_READERS if name != ".parquet")])
    text = " ".join(draw.choices(WORDS, k=draw.choice([5, 200])))
    data = text.encode(draw.choice(["utf-8", "cp1252", "mac-roman", "utf-16", "cp437"]), "replace")
    if suffix in ROW_READERS:
        rows = [mutated(draw, {"id": 1, "title": "t", "text": text}) for _ in range(draw.randint(1, 3))]
        data = "\n".join(map(json.dumps, rows)).encode()
    if suffix.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    if suffix == ".html":
        data = html_page([("t", [text])]).encode()
    if suffix == ".epub":
        data = write_zip(folder / ".book", epub_files([("t", [text])])).read_bytes()
    (folder / f"book{suffix}").write_bytes(damaged(draw, data))
    params = BooksParams(entry="x", encoding=draw.choice([None, None, None, "cp1252", "utf-16", "idna"]))
    check_encoding(params.encoding)
    paths = find_books(folder)
    for piece in read_books("books", paths, 1000, params.encoding, params.text_column, Counter()):
        assert suffix_of(piece.path) == suffix
        for document in clean_document(piece, params).documents:
            document.text.encode()


def _models(draw: Draw, folder: Path) -> None:
    config: dict[str, Any] = {
        "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9,
        "intermediate_size": 8, "max_position_embeddings": 8, "type_vocab_size": 2, "hidden_act": "gelu",
    }  # fmt: skip
    text = json.dumps(mutated(draw, config) if draw.random() < 0.5 else config).encode()
    (folder / "config.json").write_bytes(damaged(draw, text) if draw.random() < 0.5 else text)
    tensor = {"dtype": draw.choice(["F32", "F16", "X"]), "shape": [2, 2], "data_offsets": [0, 16]}
    header = json.dumps(mutated(draw, {"a": tensor}) if draw.random() < 0.5 else {"a": tensor}).encode()
    data = struct.pack("<Q", draw.choice([len(header), len(header), 0, 2**63])) + header + b"\0" * 16
    (folder / "model.safetensors").write_bytes(damaged(draw, data))
    names = load_config(Path("models/none") if draw.random() < 0.05 else folder).names
    read_tensors(folder, names)


ENTRIES = [*SPECIAL_TOKENS, *"abcthe", "cat", "##s", "."]
TEXTS = ["the cats.", "a" * 30 + "b", "é \u0301\ufeff\0 𝒳", "", "[MASK] a"]


def _plain_tokenizers() -> dict[str, Any]:
    """A tokenizer.json of each kind by the type of model that has it."""
    wordpiece = json.loads(build_tokenizer(ENTRIES, lowercase=True).to_str())
    parts: dict[str, Any] = {"normalizer": None, "decoder": None, "post_processor": wordpiece["post_processor"]}
    letters = {token: number for number, token in enumerate([*SPECIAL_TOKENS, "a", "b", "ab", "Ġ"])}
    bpe = {"type": "BPE", "vocab": letters, "merges": [["a", "b"]]}
    unigram = {"type": "Unigram", "unk_id": 1, "vocab": [[token, -float(number)] for token, number in letters.items()]}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "bert": wordpiece,
        "roberta": wordpiece | parts | {"model": bpe, "pre_tokenizer": by_bytes},
        "albert": wordpiece | parts | {"model": unigram, "pre_tokenizer": {"type": "WhitespaceSplit"}},
    }


def _tokenizers(draw: Draw, folder: Path) -> None:
    model_type, tree = draw.choice(list(_plain_tokenizers().items()))
    charsmap = base64.b64encode(struct.pack("<I", draw.choice([0, 4, 8, 2**31])) + draw.randbytes(draw.randint(0, 12)))
    regex = draw.choice(["(a+)+$", "(", "\\\\p{X}", "(?=a)", "", "(?<!a)*", "[\\ud800]"])
    hostile: dict[str, Any] = {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap.decode()},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
        "model": tree["model"] | {"merges": [draw.sample(["a", "b", "ab", "x", "é", ""], 2) for _ in range(2)]},
        "truncation": {"max_length": draw.choice([0, 1, 2**63]), "strategy": "LongestFirst", "stride": 9},
    }
    name = draw.choice([None, *hostile])
    tree = tree | {name: hostile[name]} if name else mutated(draw, tree)
    data = json.dumps(tree).encode()
    (folder / "tokenizer.json").write_bytes(damaged(draw, data) if draw.random() < 0.2 else data)
    if draw.random() < 0.5:
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "[MASK]", "do_lower_case": True}
        (folder / "tokenizer_config.json").write_text(json.dumps(mutated(draw, settings)), encoding="utf-8")
    tokenizer = load_tokenizer(folder) if draw.random() < 0.5 else read_foreign(folder, model_type)
    if tokenizer is not None:
        tokenizer.encode_batch(TEXTS)
        reading_masks(tokenizer).encode_batch(TEXTS)


@functools.cache
def _model_folder() -> dict[str, bytes]:
    """Files of a small model."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "v").mkdir()
        save_tokenizer(folder / "v", ENTRIES, lowercase=True)
        model = BertForPretraining(BertConfig(len(ENTRIES), 8, 1, 1, 8, 12))
        (folder / "m").mkdir()
        save_model(folder / "m", model, model.bert.config, "BertForPreTraining", folder / "v")
        return {path.name: path.read_bytes() for path in sorted((folder / "m").iterdir())}


def _model_folders(draw: Draw, folder: Path) -> None:
    files = dict(_model_folder())
    name = draw.choice(list(files))
    if name.endswith(".json") and draw.random() < 0.7:
        files[name] = json.dumps(mutated(draw, json.loads(files[name]))).encode()
    elif draw.random() < 0.2:
        del files[name]
    else:
        files[name] = damaged(draw, files[name])
    (folder / "model").mkdir()
    for file, data in files.items():
        (folder / "model" / file).write_bytes(data)
    source = folder / "model"
    if draw.random() < 0.5:
        source = folder / "imported"
        with contextlib.redirect_stdout(io.StringIO()):
            import_model.main(argparse.Namespace(source=folder / "model", destination=source, lowercase=None))
    fill_mask(open_masked_lm(source), "the [MASK] sat.", 3)


BORDERS: dict[str, Border] = {
    "archives": _archives,
    "replies": _replies,
    "tables": _tables,
    "tagged words": _tagged,
    "squad": _squad,
    "books": _books,
    "models": _models,
    "tokenizers": _tokenizers,
    "model folders": _model_folders,
}


def listing(folder: Path) -> dict[str, str]:
    """The files below a folder, with their sums."""
    return {str(path.relative_to(folder)): hash_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


class Hang(BaseException):
    """A case took longer than ``MAX_SECONDS``."""


def run_case(border: Border, seed: str) -> tuple[str, str]:
    """What became of one case: ``taken``, ``refused``, ``traceback``, ``hang`` or ``outside``; and a few words."""
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around, "deep/er/folder")
        folder.mkdir(parents=True)
        signal.alarm(MAX_SECONDS)
        try:
            border(random.Random(seed), folder)
            outcome = "taken", ""
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            output, explained = "".join(traceback.format_exc().splitlines(keepends=True)[-7:]), explain(error)
            if explained is None:
                outcome = "hang" if isinstance(error, Hang) else "traceback", output
            else:
                clean = str(explained).replace("\n", "").isprintable()
                outcome = ("refused", "") if clean else ("traceback", f"control codes in {str(explained)!r}")
        finally:
            signal.alarm(0)
        if any(not path.startswith("deep/er/folder/") for path in listing(Path(around))):
            return "outside", str(list(listing(Path(around))))
        return outcome


def _alarm(number: int, frame: FrameType | None) -> None:
    raise Hang


def main(argv: list[str] | None = None) -> int:
    """Run cases until the time is up; prints a figure for each border, then the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=BORDERS, help="one border")
    parser.add_argument("--case", help="one case, by the seed that was printed")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGALRM, _alarm)
    https.MAX_WAIT = 0.0
    os.environ[PLAIN] = "1"
    log.setLevel(logging.CRITICAL)
    borders = {arguments.only: BORDERS[arguments.only]} if arguments.only else BORDERS
    counts: dict[str, Counter[str]] = {name: Counter() for name in borders}
    ends, number, num_shown = time.monotonic() + 60 * arguments.minutes, 0, 0
    before = set(os.listdir("."))
    while time.monotonic() < ends and not (arguments.case and number):
        for name, border in borders.items():
            seed = arguments.case or f"{arguments.seed} {name} {number}"
            outcome, output = run_case(border, seed)
            counts[name][outcome] += 1
            if output and num_shown < MAX_SHOWN:
                num_shown += 1
                print(f"{name}: {outcome}: --only {name!r} --case {seed!r}\n{output}", file=sys.stderr)
        number += 1
    new = set(os.listdir(".")) - before
    for name, count in counts.items():
        print(f"  {name:<14} {', '.join(f'{number:,} {outcome}' for outcome, number in sorted(count.items()))}")
    total = sum(counts.values(), Counter())
    bad = {outcome: total[outcome] for outcome in ("traceback", "hang", "outside")}
    figures = {
        "seed": arguments.seed,
        "cases": total.total(),
        "errors": total["refused"],
        **bad,
        "new_here": sorted(new),
    }
    print(json.dumps({"name": "fuzz", **figures}))
    return 1 if any(bad.values()) or new else 0


if __name__ == "__main__":
    sys.exit(main())
