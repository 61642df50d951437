# RingZero with all that it needs to run, for clusters and for CI elsewhere (CPU; transports local, shm and ucx):
#
#   docker build -t ringzero .
#   docker run --rm --shm-size=2g ringzero train examples/fashion_mnist.json
FROM debian:12-slim AS build
WORKDIR /opt/ringzero
COPY . .
RUN cmake/container.sh build

FROM debian:12-slim
COPY --from=build /opt/ringzero /opt/ringzero
RUN /opt/ringzero/cmake/container.sh run
ENV PATH=/opt/ringzero/bin:$PATH
WORKDIR /opt/ringzero
ENTRYPOINT ["ringzero"]
CMD ["help"]
