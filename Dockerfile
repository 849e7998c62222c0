# Server and devices of a deployment, in one image: docker build -t autofl . (see docs/deployment.md, compose.yaml)
FROM python:3.11-slim

RUN useradd --create-home --uid 10001 autofl
WORKDIR /opt/autofl
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
# PyTorch's own index has builds without CUDA, a tenth of the size; versions are those of constraints.txt.
RUN pip install --no-cache-dir --disable-pip-version-check \
        --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt ".[demo,flower]"
# What containers write is their user's alone: keys, data and runs (the shell's umask holds for all it starts).
RUN install -d -o autofl -m 700 /site /runs
USER autofl
ENV OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 PYTHONUNBUFFERED=1
ENTRYPOINT ["sh", "-c", "umask 077 && exec \"$0\" \"$@\""]
CMD ["autofl", "--help"]
