# regard on a CPU, from the versions that the tests were last seen green with.
#   docker build -t regard .
#   docker run --rm -v "$PWD/runs:/srv/runs" regard demo
#   docker run --rm -v "$PWD/runs:/srv/runs" -p 127.0.0.1:8000:8000 regard
FROM python:3.12-slim

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
WORKDIR /build

# The CPU's torch is a tenth of the size; elsewhere the same version brings a GPU's libraries along.
COPY constraints.txt .
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --constraint constraints.txt --index-url "$TORCH_INDEX" torch

COPY pyproject.toml README.md LICENSE ./
COPY regard regard
RUN pip install --constraint constraints.txt '.[serve,sound]'

RUN useradd --create-home --uid 1000 regard && mkdir -p /srv/runs && chown -R regard /srv
USER regard
WORKDIR /srv
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)"
ENTRYPOINT ["regard"]
CMD ["serve", "runs/demo", "--host", "0.0.0.0"]
