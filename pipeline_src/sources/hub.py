"""Scheme ``hub``: files of a dataset or a model on Hugging Face's hub, or on the mirror that ``HF_ENDPOINT`` names.

huggingface_hub lists files, sizes and checksums, and finds the user's token. ``https`` fetches the bytes, since it
resumes a file after a kill, which the library does not.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.messages import CleanFormatter
from pipeline_src.base.names import checked_path, shown_text
from pipeline_src.sources.catalogue import HUB_ADDRESS, SourceFile

# The first of these that a model has is fetched.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
MODEL_FILES = (
    *("config.json", "README.md", *WEIGHTS, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "spm.model"),
)


def list_files(file: SourceFile) -> list[SourceFile]:
    """Return the files at a ``hub:`` address, sorted, with https addresses, sizes and the hub's checksums.

    Of a model, these are its config, weights, tokenizer and card. All are of the commit that a branch or tag names now.
    The hub has no sha256 of small files, so that their addresses name the commit; others are cached by their sha256.
    """
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.hf_api import RepoFile

    clean_warnings()
    match = HUB_ADDRESS.fullmatch(file.url)
    # The catalogue rejects other forms.
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
        # The versions of the library raise errors of different HTTP libraries.
        raise _listing_error(error, repo, revision) from None
    if pattern:
        paths = [path for path in sorted(listed) if PurePosixPath("/", path).match(f"/{pattern}")]
    else:
        weights = next((name for name in WEIGHTS if name in listed), None)
        paths = [name for name in MODEL_FILES if name in listed and (name == weights or name not in WEIGHTS)]
    if not paths or not (pattern or weights):
        hint = f"name files that {repo} has, or a model with config.json and {' or '.join(WEIGHTS)}"
        raise PipelineError("no such file on the hub", pattern or "weights", where=f"{repo}@{revision}", hint=hint)
    # One file gets the catalogue's name.
    is_one = paths == [pattern]
    result = []
    for path in paths:
        checked_path(path, f"{repo}@{revision}", "do not trust this repository; name its other files one by one")
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
    # huggingface_hub prints what a hub sends as a warning; control codes must not reach the terminal.
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
        hint = f"name a branch, a tag or a commit that {repo} has; instead of a name with a slash, its commit"
    elif isinstance(error, RepositoryNotFoundError) or status in (401, 403):
        hint = "check its name; if it is private or gated, accept its terms there, then `hf auth login` or set HF_TOKEN"
    elif isinstance(error, EntryNotFoundError):
        hint = f"name files that {repo} has in that revision"
    else:
        hint = (
            "check the network, HF_ENDPOINT and HF_HUB_OFFLINE, then run the same command again; or fetch the files by "
            "other means and name them as file:… in the catalogue"
        )
    # httpx quotes a token that has a control character.
    message = re.sub("(?s)Bearer .*", "Bearer …", str(error))
    reason = f"{type(error).__name__}: {shown_text(message)}"
    return PipelineError("the hub does not list it", f"{repo}@{revision}", where=reason, hint=hint)
