# syntax=docker/dockerfile:1
# The one binary on nothing: no shell, no package manager, a user without rights. To look at it:
#   docker run --rm -p 8080:8080 agentstream dev --listen 0.0.0.0
FROM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=devel
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/var/cache/go-build \
    GOCACHE=/var/cache/go-build CGO_ENABLED=0 \
    go build -trimpath -ldflags "-s -w -X agentstream/cmd/agentstream/internal/cli.version=${VERSION}" -o /out/agentstream ./cmd/agentstream
RUN mkdir -p /out/root-fs/etc /out/root-fs/tmp /out/root-fs/data \
    && echo 'agentstream:x:65532:65532::/data:/none' > /out/root-fs/etc/passwd \
    && chmod 1777 /out/root-fs/tmp && chown 65532:65532 /out/root-fs/data

FROM scratch
ARG VERSION=devel
ARG REVISION=
LABEL org.opencontainers.image.title="agentstream" \
      org.opencontainers.image.description="Keeps every event of an AI agent's run, and lets people and programs watch and control it" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/root-fs/ /
COPY --from=build /out/agentstream /usr/bin/agentstream
USER 65532:65532
WORKDIR /data
ENV AGENTSTREAM_DATA=/data
EXPOSE 8080
# Roles answer at --admin-listen, in this container alone.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["/usr/bin/agentstream", "healthcheck"]
ENTRYPOINT ["/usr/bin/agentstream"]
CMD ["--help"]
