"""Scheme ``hub``: files of a dataset or model on Hugging Face's hub, or on the mirror in ``HF_ENDPOINT``.

huggingface_hub lists files, sizes and checksums, and finds the user's token. The bytes are fetched by ``https.py``,
since huggingface_hub does not resume a file after a kill.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.messages import CleanFormatter
from pipeline_src.base.names import checked_path, shown_text
from pipeline_src.sources.catalogue import HUB_ADDRESS, SourceFile

# Weight files in order of preference. Only the first one that a model has is fetched.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
MODEL_FILES = (
    *("config.json", "README.md", *WEIGHTS, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "spm.model"),
)


def list_files(file: SourceFile) -> list[SourceFile]:
    """List the files at a ``hub:`` address, with their https addresses, sizes and checksums.

    A dataset address lists the files that match its pattern, sorted. A model address lists config, weights, tokenizer
    and model card. A branch or tag is resolved to its current commit.

    The hub has a SHA-256 only for large (LFS) files. So the address of a small file contains the commit. Otherwise, a
    cached small file would not be replaced when the branch moves.
    """
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.hf_api import RepoFile

    clean_warnings()
    match = HUB_ADDRESS.fullmatch(file.url)
    # The catalogue has already validated the address.
    assert match is not None, file.url
    repo, revision, pattern = match.group("repo", "revision", "path")
    repo_type = "dataset" if pattern else "model"
    folder = os.path.dirname(re.split(r"[*?[]", pattern)[0]) if pattern else ""
    recursive = "/" in (pattern or "")[len(folder) + 1 :]
    try:
        commit = HfApi().repo_info(repo, revision=revision, repo_type=repo_type).sha
        tree = HfApi().list_repo_tree(repo, folder or None, recursive=recursive, revision=commit, repo_type=repo_type)
        listed = {item.path: item for item in tree if isinstance(item, RepoFile)}
    except Exception as error:
        # Depending on its version, huggingface_hub raises errors of requests or of httpx.
        raise _listing_error(error, repo, revision) from None
    if pattern:
        paths = [path for path in sorted(listed) if PurePosixPath("/", path).match(f"/{pattern}")]
    else:
        weights = next((name for name in WEIGHTS if name in listed), None)
        paths = [name for name in MODEL_FILES if name in listed and (name == weights or name not in WEIGHTS)]
    if not paths or not (pattern or weights):
        hint = f"check the path against the files of {repo}; a model needs config.json and {' or '.join(WEIGHTS)}"
        raise PipelineError("no such file on the hub", pattern or "weights", where=f"{repo}@{revision}", hint=hint)
    # A single file is renamed to the path in the catalogue.
    is_one = paths == [pattern]
    result = []
    for path in paths:
        checked_path(path, f"{repo}@{revision}", "do not trust this repository; list the files you need one by one")
        lfs = listed[path].lfs
        update = {
            "path": file.path if is_one else (Path(file.path) / os.path.relpath(path, folder or ".")).as_posix(),
            "url": hf_hub_url(repo, path, repo_type=repo_type, revision=revision if lfs else commit),
            "bytes": listed[path].size,
            "checksum": (is_one and file.checksum) or (f"sha256:{lfs.sha256}" if lfs else None),
        }
        result.append(file.model_copy(update=update))
    return result


def clean_warnings() -> None:
    # huggingface_hub prints warnings that the server sends. Escape control codes before they reach the terminal.
    from huggingface_hub.utils.logging import get_logger

    for handler in get_logger().handlers:
        handler.setFormatter(CleanFormatter())


def authorization() -> dict[str, str]:
    from huggingface_hub.utils import build_hf_headers

    return {name: value for name, value in build_hf_headers().items() if name.lower() == "authorization"}


def _listing_error(error: Exception, repo: str, revision: str) -> PipelineError:
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, RevisionNotFoundError):
        hint = f"use a branch, tag or commit of {repo}; if its name has a slash, use the commit instead"
    elif isinstance(error, RepositoryNotFoundError) or status in (401, 403):
        hint = "check the name; if it is private or gated, accept its terms, then `hf auth login` or set HF_TOKEN"
    elif isinstance(error, EntryNotFoundError):
        hint = f"use a path that exists in {repo} at this revision"
    else:
        hint = (
            "check the network, HF_ENDPOINT and HF_HUB_OFFLINE, then run the same command again; or download the files "
            "by hand and write file:PATH as their url in the catalogue"
        )
    # If the token has an invalid character, httpx quotes the whole header in its error. Do not print the token.
    message = re.sub("(?s)Bearer .*", "Bearer …", str(error))
    reason = f"{type(error).__name__}: {shown_text(message)}"
    return PipelineError("cannot list files on Hugging Face's hub", f"{repo}@{revision}", where=reason, hint=hint)
