"""The sides of benchmark ``wikipedia``, each a program: ``python -m benchmarks._wikipedia_sides SIDE DUMP FOLDER``.

It writes below FOLDER and prints one line of JSON about itself. Nothing is imported that its side does not need.
"""

from __future__ import annotations

import bz2
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.measure import cpu_seconds
from pipeline_src.base.paths import clean_text, raw_files

# Id, title and wikitext of an article.
Article = tuple[str, str, str]
TEXT = clean_text("wikipedia")


def beam(dump: Path, folder: Path) -> None:
    # The stage as it is, in a project of its own, on the runner that $BEAM_ARGS names, if any.
    from pipeline_src.study.data import WikipediaParams
    from pipeline_src.text.wikipedia import clean_wikipedia as wikipedia

    os.chdir(folder)
    raw_files("wikipedia").mkdir(parents=True)
    (raw_files("wikipedia") / "dump.xml.bz2").symlink_to(dump)
    wikipedia.run("wikipedia", WikipediaParams(entry="own-wikipedia"), json.loads(os.environ.get("BEAM_ARGS", "[]")))


def loop(dump: Path, folder: Path) -> None:
    """Call the same functions in a plain loop over all ranges, which gives a lower bound of the cost."""
    from pipeline_src.study.data import WikipediaParams
    from pipeline_src.text.documents import write_manifest
    from pipeline_src.text.wikipedia.clean_wikipedia import DumpPart, Range, clean_range
    from pipeline_src.text.wikipedia.dump import read_head, split_ranges
    from pipeline_src.text.wikipedia.siteinfo import read_siteinfo

    (folder / TEXT).mkdir(parents=True)
    part, params = DumpPart("", dump, read_siteinfo(read_head(dump))), WikipediaParams(entry="own-wikipedia")
    rows = [clean_range(Range(part, *ends), folder / TEXT, params) for ends in split_ranges(dump)]
    write_manifest(folder / TEXT, [row["shard"] for row in rows], {})


def published(dump: Path, folder: Path) -> None:
    """The topology that TensorFlow Datasets and Hugging Face published for ``wikipedia``, from its description.

    One element is a whole dump file; it is parsed with iterparse, its articles are shuffled between the workers, and
    each is cleaned with mwparserfromhell (``_cleaners.tfds``).
    """
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from benchmarks._cleaners import tfds

    def clean(article: Article) -> str:
        identifier, title, text = article
        return json.dumps({"id": identifier, "title": title, "text": tfds(text)})

    with apache_beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        (
            pipeline
            | apache_beam.Create([str(dump)])
            | "extract" >> apache_beam.FlatMap(extract)
            | "distribute" >> apache_beam.Reshuffle()
            | "clean" >> apache_beam.Map(clean)
            | "write" >> apache_beam.io.WriteToText(str(folder / "articles"), ".jsonl")
        )


def extract(dump: str) -> Iterator[Article]:
    # Articles are pages of namespace 0 that are not redirects.
    with bz2.open(dump) as file:
        events = ElementTree.iterparse(file, events=("end",))
        for _, element in events:
            if not element.tag.endswith("}page"):
                continue
            space = element.tag[: -len("page")]
            text = element.findtext(f"./{space}revision/{space}text") or ""
            identifier = element.findtext(f"./{space}id") or ""
            title = element.findtext(f"./{space}title") or ""
            article = element.findtext(f"./{space}ns") == "0" and text and not text.lower().startswith("#redirect")
            element.clear()
            if article:
                yield identifier, title, text


SIDES: dict[str, Callable[[Path, Path], None]] = {"beam": beam, "loop": loop, "published": published}


def main(side: str, dump: str, folder: str) -> None:
    SIDES[side](Path(dump).absolute(), Path(folder).absolute())
    # Peak memory of this program. ru_maxrss would include the memory of its parent at the start.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    print(json.dumps({"cpu_s": cpu_seconds(), "peak_mb": int(peak[1]) * 1024 / 1e6}))


if __name__ == "__main__":
    main(*sys.argv[1:])
