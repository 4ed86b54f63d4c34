# The image: one static binary and CA certificates in an empty root, without a shell or a package manager.
#
#   docker build -t antiphon .
#   docker run --rm --read-only -p 127.0.0.1:4747:4747 antiphon
#
# Clients on this machine then use http://127.0.0.1:4747/anthropic and so on. If clients use another name, such as
# `antiphon` in a compose file, add it to `server.allow_hosts`:
#
#   docker run … -v ./antiphon.toml:/etc/antiphon.toml:ro -e ANTIPHON_CONFIG=/etc/antiphon.toml antiphon

FROM rust:1.95.0-bookworm AS chef
RUN cargo install cargo-chef --locked --version 0.1.78
WORKDIR /src

FROM chef AS plan
COPY . .
RUN cargo chef prepare --recipe-path recipe.json

FROM chef AS build
# What is shipped is `dist`. `--build-arg PROFILE=release` builds in a third of the time.
ARG PROFILE=dist
# With an explicit target the flags apply to the binary only: build scripts and macros stay dynamic.
ENV RUSTFLAGS="-C target-feature=+crt-static"
COPY --from=plan /src/recipe.json recipe.json
RUN cargo chef cook --profile "$PROFILE" --locked --target "$(uname -m)-unknown-linux-gnu" --recipe-path recipe.json
COPY . .
RUN cargo build --profile "$PROFILE" --locked --target "$(uname -m)-unknown-linux-gnu" \
 && install -D "target/$(uname -m)-unknown-linux-gnu/$PROFILE/antiphon" /out/antiphon \
 && install -D -m 644 /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ca-certificates.crt

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
USER 65532:65532
# Listens on every address, because each of them belongs to the container. `-p` decides which clients can connect. The
# proxy answers only under a loopback name or one of server.allow_hosts. Health and metrics stay on 127.0.0.1 of the
# container (or pod).
ENV ANTIPHON_LISTEN=0.0.0.0:4747
EXPOSE 4747 4748
HEALTHCHECK --interval=10s --timeout=6s --start-period=2s CMD ["/antiphon", "healthcheck"]
ENTRYPOINT ["/antiphon"]
