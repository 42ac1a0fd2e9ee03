"""What every training does once in its process, done where it is forked from: its code is read for its checksum."""

import torch._dynamo  # noqa: F401, what an optimiser imports at its first step

from pipeline_src.common.fingerprint import imported_files
from pipeline_src.pretraining.identity import CODE

imported_files(CODE)
