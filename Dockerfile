# Server and devices of a deployment, in one image: docker build -t autofl . (see docs/deployment.md, compose.yaml)
FROM python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1

RUN useradd --no-create-home --uid 10001 autofl
WORKDIR /opt/autofl
COPY pyproject.toml hashes.txt README.md LICENSE ./
COPY tools ./tools
COPY src ./src
# PyTorch's own index has builds without CUDA, a tenth of the size; a mirror of it: docker build --build-arg
# TORCH_INDEX=... Every file is checked against hashes.txt, whichever index it comes from.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 && \
    PIP_EXTRA_INDEX_URL="$TORCH_INDEX" python tools/dependencies.py install demo,flower && \
    pip install --no-deps --no-build-isolation .
# What containers write is their user's alone: keys, data and runs (the shell's umask holds for all it starts).
RUN install -d -o autofl -m 700 /site /runs
USER autofl
# Where Flower and Matplotlib keep what they need: a tmpfs over a home folder would be root's, one over /tmp is anybody's.
ENV HOME=/tmp
ENV OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 PYTHONUNBUFFERED=1
ENTRYPOINT ["sh", "-c", "umask 077 && exec \"$0\" \"$@\""]
CMD ["autofl", "--help"]
