# The service as one static binary in an empty image. Build: docker build -t manifold .
# A release adds --build-arg VERSION=v1.2.3, because the build has no git checkout to read it from.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What holds in the image unless MANIFOLD_CONFIG names another file, or the environment says otherwise: outside of a
# container the service listens on the loopback address, where nobody would reach it here.
RUN printf 'listen: ":8080"\nadmin: {listen: ":9080"}\n' > /manifold.yaml
ARG VERSION
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -o /manifold \
    -ldflags="-s -w -X github.com/manifold-es/manifold/service.version=$VERSION" ./cmd/manifold

FROM scratch
# To reach other services over TLS: webhooks, databases, traces.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /manifold.yaml /etc/manifold/manifold.yaml
ENV MANIFOLD_CONFIG=/etc/manifold/manifold.yaml
COPY --from=build /manifold /manifold
USER 65532:65532
ARG VERSION
LABEL org.opencontainers.image.source=https://github.com/manifold-es/manifold \
    org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.version=$VERSION
# 9080 is for probes, metrics and the operator: not to be published.
EXPOSE 8080 9080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/manifold"]
CMD ["serve"]
