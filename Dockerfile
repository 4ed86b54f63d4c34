# The image: one static binary and CA certificates in an empty root, without a shell or a package manager.
#
#   docker build -t antiphon .
#   docker run --rm --read-only -v antiphon:/state -p 127.0.0.1:4747:4747 antiphon
#
# Clients on this machine then use http://127.0.0.1:4747/anthropic and so on. If clients use another name, such as
# `antiphon` in a compose file, add `-e ANTIPHON_ALLOW_HOSTS=antiphon`. `antiphon serve --help` lists every variable.
# The dashboard and the metrics, with a token in the file admin-token, which every user can read (`chmod 644`):
#
#   docker run … -v ./admin-token:/run/secrets/admin-token:ro -e ANTIPHON_ADMIN_TOKEN_FILE=/run/secrets/admin-token \
#     -e ANTIPHON_ADMIN_LISTEN=0.0.0.0:4748 -p 127.0.0.1:4748:4748 antiphon
#
# deploy/compose has both, with an agent. A configuration file, for profiles, services and other tables:
#
#   docker run … -v ./antiphon.toml:/etc/antiphon.toml:ro -e ANTIPHON_CONFIG=/etc/antiphon.toml antiphon

FROM rust:1.95.0-bookworm AS chef
RUN cargo install cargo-chef --locked --version 0.1.78
WORKDIR /src

FROM chef AS plan
COPY . .
RUN cargo chef prepare --recipe-path recipe.json

FROM chef AS build
# What is shipped is `dist`. `--build-arg PROFILE=release` is quicker to build.
ARG PROFILE=dist
# With an explicit target the flags apply to the binary only: build scripts and macros stay dynamic.
ENV RUSTFLAGS="-C target-feature=+crt-static"
COPY --from=plan /src/recipe.json recipe.json
RUN cargo chef cook --profile "$PROFILE" --locked --target "$(uname -m)-unknown-linux-gnu" --recipe-path recipe.json
COPY . .
# Shown by `antiphon_build_info`.
ARG REVISION=
RUN SOURCE_REVISION="$REVISION" cargo build --profile "$PROFILE" --locked --target "$(uname -m)-unknown-linux-gnu" \
 && install -D "target/$(uname -m)-unknown-linux-gnu/$PROFILE/antiphon" /out/antiphon \
 && install -D -m 644 /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ca-certificates.crt \
 && mkdir /state

FROM scratch
# The registry shows these. `deploy/release/image-labels` prints the arguments.
ARG VERSION=
ARG REVISION=
ARG CREATED=
ARG SOURCE=
LABEL org.opencontainers.image.title="Antiphon" \
      org.opencontainers.image.description="A reverse proxy for LLM provider APIs that makes sure every tool call has exactly one answer" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.source="$SOURCE"
# The binary, and the certificates of the build image. Without certificates the binary uses its built-in roots.
COPY --from=build /out/ /
# The folder of the ledger. A new volume at this path takes its owner, so that the user below can write.
COPY --from=build --chown=65532:65532 /state /state
USER 65532:65532
# Listens on every address, because each of them belongs to the container. `-p` decides which clients can connect. The
# proxy answers only under a loopback name or one of server.allow_hosts. Health, metrics and dashboard stay on 127.0.0.1
# of the container (or pod) without a token. The ledger is /state/antiphon/ledger.db, or memory if /state is read-only.
ENV ANTIPHON_LISTEN=0.0.0.0:4747 \
    XDG_STATE_HOME=/state
EXPOSE 4747 4748
HEALTHCHECK --interval=10s --timeout=6s --start-period=2s CMD ["/antiphon", "healthcheck"]
ENTRYPOINT ["/antiphon"]
