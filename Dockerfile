# The container image: every function and the watch source, as deploy/knative runs them. `make image` builds it.
#
# BASE is an image with a shell, Python 3.11 or newer and its pip, of which the image keeps Python alone. Everything
# else is in build/wheels, which `make image` fills: nothing is fetched here, `--network none` will do.
ARG BASE=docker.io/library/python:3.11-slim

FROM ${BASE} AS build
COPY requirements-runtime.lock build/wheels/ /wheels/
ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_NO_COMPILE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Of the commands that come with the dependencies none is of use here, and of kubernetes_asyncio not the generated API
# models, which functions/access/lean_import.py leaves aside: 46 MB. What is compiled holds whatever time stamps say: the
# image may be unpacked with others, and nothing in it ever changes.
RUN set -eu; \
    python3 -m venv --without-pip /opt/serving-stack; \
    pip() { python3 -m pip --python /opt/serving-stack/bin/python3 "$@"; }; \
    pip install --quiet --require-hashes --requirement /wheels/requirements-runtime.lock; \
    pip install --quiet --no-deps modelplane-serving-stack; \
    pip check; \
    find /opt/serving-stack/bin -type f ! -name serving-stack -delete; \
    rm -r /opt/serving-stack/include /opt/serving-stack/lib/python3.*/site-packages/kubernetes_asyncio/client; \
    python3 -m compileall -q -f --invalidation-mode unchecked-hash /opt/serving-stack/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="Modelplane serving stack" \
      org.opencontainers.image.licenses="Apache-2.0"
# Python's own library compiled, as many base images have it not, and nothing left that could install anything.
RUN set -eu; \
    library=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))'); \
    PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip uninstall --quiet --yes pip setuptools wheel; \
    rm -rf "$library/ensurepip"; \
    python3 -m compileall -q -f --invalidation-mode unchecked-hash -x '/(site|dist)-packages/|bad_coding|badsyntax|lib2to3/tests/data' "$library"
COPY --from=build /opt/serving-stack /opt/serving-stack
ENV PATH=/opt/serving-stack/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1
# By number, so that the kubelet can tell that it is not root. It owns no file.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/opt/serving-stack/bin/serving-stack"]
