# The service as one static binary in an empty image. Build: docker build -t manifold .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What holds in the image unless MANIFOLD_CONFIG names another file, or the environment says otherwise: outside of a
# container the service listens on the loopback address, where nobody would reach it here.
RUN printf 'listen: ":8080"\nadmin: {listen: ":9080"}\n' > /manifold.yaml
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w" -o /manifold ./cmd/manifold

FROM scratch
# To reach other services over TLS: webhooks, databases, traces.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /zoneinfo.zip
ENV ZONEINFO=/zoneinfo.zip
COPY --from=build /manifold.yaml /etc/manifold/manifold.yaml
ENV MANIFOLD_CONFIG=/etc/manifold/manifold.yaml
COPY --from=build /manifold /manifold
USER 65532:65532
# 9080 is for probes, metrics and the operator: not to be published.
EXPOSE 8080 9080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/manifold"]
CMD ["serve"]
