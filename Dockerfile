# The image: one static binary in an empty root, without shell, package manager or write access.
#
#   docker build -t antiphon .
#   docker run --rm --read-only -p 127.0.0.1:4747:4747 antiphon
#
# and clients on this machine use http://127.0.0.1:4747/anthropic and so on. Other names under which clients reach it,
# as `antiphon` in a compose file, go into `server.allow_hosts`:
#
#   docker run … -v ./antiphon.toml:/etc/antiphon.toml:ro -e ANTIPHON_CONFIG=/etc/antiphon.toml antiphon

FROM rust:1.95.0-bookworm AS chef
RUN cargo install cargo-chef --locked --version 0.1.78
WORKDIR /src

FROM chef AS plan
COPY . .
RUN cargo chef prepare --recipe-path recipe.json

FROM chef AS build
# With a target of its own the flags are for the binary alone: build scripts and macros stay dynamic.
ENV RUSTFLAGS="-C target-feature=+crt-static"
COPY --from=plan /src/recipe.json recipe.json
RUN cargo chef cook --release --locked --target "$(uname -m)-unknown-linux-gnu" --recipe-path recipe.json
COPY . .
RUN cargo build --release --locked --target "$(uname -m)-unknown-linux-gnu" \
 && install -D "target/$(uname -m)-unknown-linux-gnu/release/antiphon" /out/antiphon \
 && install -D -m 644 /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ca-certificates.crt

FROM scratch
# The binary, and the certificates of the build image; without any the roots inside the binary are used.
COPY --from=build /out/ /
USER 65532:65532
# Inside a container every address is this container's: who may come in is what `-p` publishes, and only under a
# loopback name or one of server.allow_hosts. Health and metrics stay on 127.0.0.1 of the container (or pod).
ENV ANTIPHON_LISTEN=0.0.0.0:4747
EXPOSE 4747 4748
HEALTHCHECK --interval=10s --timeout=6s --start-period=2s CMD ["/antiphon", "healthcheck"]
ENTRYPOINT ["/antiphon"]
