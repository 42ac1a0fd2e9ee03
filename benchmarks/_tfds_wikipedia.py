"""The topology that TensorFlow Datasets and Hugging Face published for ``wikipedia``, written from its description.

One element is a whole dump file; it is parsed with iterparse, its articles are shuffled between the workers, and each
is cleaned with mwparserfromhell (``_cleaners.tfds``).
"""

from __future__ import annotations

import bz2
import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks._cleaners import tfds

Article = tuple[str, str, str]  # id, title, wikitext


def run(dump: Path, folder: Path) -> None:
    """Write the dump's articles, cleaned, as lines of JSON into ``folder``."""
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        (
            pipeline
            | beam.Create([str(dump)])
            | "extract" >> beam.FlatMap(extract)
            | "distribute" >> beam.Reshuffle()
            | "clean" >> beam.Map(clean)
            | "write" >> beam.io.WriteToText(str(folder / "articles"), ".jsonl")
        )


def extract(dump: str) -> Iterator[Article]:
    """Articles of a whole file: namespace 0, no redirects."""
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


def clean(article: Article) -> str:
    """One article as a line of JSON."""
    identifier, title, text = article
    return json.dumps({"id": identifier, "title": title, "text": tfds(text)})
