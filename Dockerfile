# syntax=docker/dockerfile:1
# The one binary on nothing: no shell, no package manager, a user without rights.
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
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/root-fs/ /
COPY --from=build /out/agentstream /usr/bin/agentstream
USER 65532:65532
WORKDIR /data
ENTRYPOINT ["/usr/bin/agentstream"]
CMD ["--help"]
