# The environment of the study, for clusters without Python 3.11 or later:
#   docker build -t bert-pipeline .      # CPU nodes: --build-arg TORCH=cpu
#   apptainer build bert-pipeline.sif docker-daemon://bert-pipeline:latest
# The checkout is mounted, not copied:
#   apptainer exec --nv --bind "$PWD" --pwd "$PWD" bert-pipeline.sif snakemake --cores 8 all
# With docker run, give --init: without an init process, a killed DVC keeps its lock.
FROM python:3.13-slim
ARG TORCH=
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/bert-pipeline
COPY Makefile pyproject.toml torch.lock ./
COPY locks locks
RUN make .venv/study-installed TORCH=$TORCH && rm -rf /root/.cache .venv/tools
ENV PATH=/opt/bert-pipeline/.venv/bin:$PATH
